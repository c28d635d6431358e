"""What a server says is taken as it says it or not at all."""

import json

import pytest

from ddtree_tune.core.errors import EngineError
from ddtree_tune.core.trace import Phase, RequestError, SpecCounters
from ddtree_tune.node.live import LiveTrace
from ddtree_tune.node.replies import charged, counted
from ddtree_tune.node.stream import StreamFault, read_chat, read_generate

NO_COUNTS = ["12", 12.0, 1.5, -1, True, [12], {"count": 12}]


def live():
    return LiveTrace("r", Phase.WINDOW, "words", "0" * 16)


def chat(trace, **chunk):
    read_chat(json.dumps(chunk), 7, trace)
    return trace


def content(**delta):
    return [{"index": 0, "delta": delta, "finish_reason": None}]


@pytest.mark.parametrize("count", NO_COUNTS)
@pytest.mark.parametrize(
    "path",
    [
        ("usage", "completion_tokens"),
        ("usage", "prompt_tokens"),
        ("usage", "prompt_tokens_details", "cached_tokens"),
        ("sglext", "spec_tokens_details", "spec_verify_ct"),
    ],
)
def test_what_is_no_count_is_refused_with_its_place(path, count):
    value = count
    for name in reversed(path):
        value = {name: value}
    with pytest.raises(StreamFault) as refused:
        chat(live(), choices=content(content="a"), **value)
    assert refused.value.error is RequestError.BAD_REPLY
    assert path[-1] in refused.value.detail or "spec_tokens_details" in refused.value.detail


@pytest.mark.parametrize("count", NO_COUNTS)
def test_the_native_endpoint_is_read_as_strictly(count):
    with pytest.raises(StreamFault, match="completion_tokens"):
        read_generate(json.dumps({"text": "a", "meta_info": {"completion_tokens": count}}), 7, live())
    meta = {"spec_verify_ct": 1, "spec_correct_drafts_histogram": [0, count]}
    with pytest.raises(StreamFault, match="spec_correct_drafts_histogram"):
        read_generate(json.dumps({"text": "a", "meta_info": meta}), 7, live())


@pytest.mark.parametrize("text", [12, ["a"], {"text": "a"}, True])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(StreamFault, match="content"):
        chat(live(), choices=content(content=text))


@pytest.mark.parametrize("data", ["", "{oops", "[]", "null", '{"choices": {}}', '{"choices": []} x', '{"usage": NaN}'])
def test_what_is_no_chunk_is_refused(data):
    with pytest.raises(StreamFault) as refused:
        read_chat(data, 7, live())
    assert refused.value.error is RequestError.BAD_REPLY


def test_unknown_keys_pass_at_every_depth():
    known = {"completion_tokens": 4, "prompt_tokens": 8, "new": [1, {"a": None}]}
    choices = [{"delta": {"content": "hi", "tool_calls": None}, "matched_stop": 3, "logprobs": {}}]
    trace = chat(live(), choices=choices, usage=known, created=1, sent_ns="0")
    assert (trace.text, trace.chunk_tokens, trace.prompt_tokens) == (["hi"], [4], 8)


def test_null_is_not_zero():
    trace = chat(live(), choices=content(content="a"), usage={"completion_tokens": None, "prompt_tokens_details": None})
    assert (trace.completion_tokens, trace.cached_tokens, trace.chunk_tokens) == (None, None, [None])


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_has_two_spellings(name):
    assert chat(live(), choices=content(**{name: "hm"})).reasoning == ["hm"]


@pytest.mark.parametrize("name", ["spec_correct_drafts_histogram", "spec_accept_histogram"])
@pytest.mark.parametrize("wrap", [lambda details: details, lambda details: [details]])
def test_the_histogram_has_two_spellings_and_may_come_in_a_list(name, wrap):
    details = wrap({"spec_verify_ct": 3, name: [1, 2]})
    assert chat(live(), choices=[], sglext={"spec_tokens_details": details}).spec == SpecCounters(3, (1, 2))


def test_a_server_that_did_not_verify_has_no_counters():
    for details in (None, {}, {"spec_verify_ct": 0}, [None], [{"spec_verify_ct": 1}, {"spec_verify_ct": 2}]):
        assert chat(live(), choices=[], sglext={"spec_tokens_details": details}).spec is None


@pytest.mark.parametrize("count", NO_COUNTS)
def test_a_whole_reply_is_read_as_strictly(count):
    with pytest.raises(EngineError, match="usage"):
        charged({"usage": {"prompt_tokens": count}})
    with pytest.raises(EngineError, match="token count"):
        counted({"count": count})


def test_a_whole_reply_says_what_it_is_charged():
    assert charged({"usage": {"prompt_tokens": 9, "new": 1}, "choices": []}) == 9
    assert charged({"text": "a", "meta_info": {"prompt_tokens": 7}}) == 7
    assert counted({"count": 0, "tokens": []}) == 0
    for silent in ({}, {"usage": {}}, {"usage": {"prompt_tokens": None}, "meta_info": {}}):
        with pytest.raises(EngineError, match="prompt_tokens, but got neither"):
            charged(silent)
