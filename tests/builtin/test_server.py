"""The HTTP surface over a real socket of a real process."""

import json
import re
from itertools import pairwise

import pytest

from tests.builtin.harness import LENGTH
from tests.builtin.streams import CHAT, open_stream, wait_idle

NATIVE = {"text": "def add(a, b):", "sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}}


def test_it_says_what_it_is(server):
    (model,) = server.json("/v1/models")["data"]
    assert (model["id"], model["max_model_len"]) == ("nonce", LENGTH)
    info = server.json("/server_info")
    assert info == server.json("/get_server_info")
    expected = {
        "served_model_name": "nonce",
        "max_running_requests": 8,
        "page_size": 1,
        "speculative_algorithm": "DDTREE",
        "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4,
        "speculative_draft_window_size": 64,
        "speculative_dflash_block_size": 16,
        "speculative_num_draft_tokens": 9,
        "pid": server.process.pid,
    }
    assert {name: info[name] for name in expected} == expected
    assert "--window 64" in info["launch_command"]
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 8
    assert server.json("/model_info")["is_generation"] is True
    assert "The server is fired up and ready to roll!" in server.log.read_text()


def test_without_speculation_no_speculative_field_is_set(undrafted):
    info = undrafted.json("/server_info")
    assert all(value is None for name, value in info.items() if name.startswith("speculative"))
    reply = undrafted.json("/generate", NATIVE)
    assert not [name for name in reply["meta_info"] if name.startswith("spec")]
    assert "spec_" not in undrafted.request("/metrics")[1]
    details = undrafted.events("/v1/chat/completions", CHAT | {"max_tokens": 4, "return_spec_tokens_details": True})
    assert not any("sglext" in event for event in details)


def test_health(server):
    assert server.request("/health") == (200, "")
    assert server.request("/health_generate") == (200, "")


def test_greedy_text_is_that_of_plain_decoding(server, undrafted):
    ours, theirs = (one.json("/v1/chat/completions", CHAT) for one in (server, undrafted))
    assert ours["choices"] == theirs["choices"]
    assert ours["usage"]["completion_tokens"] > 20


def test_a_whole_chat_reply(server):
    reply = server.json("/v1/chat/completions", CHAT | {"return_meta_info": True})
    (choice,) = reply["choices"]
    assert reply["object"] == "chat.completion"
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"]
    assert choice["message"]["reasoning_content"]
    assert "<think>" not in choice["message"]["content"] + choice["message"]["reasoning_content"]
    usage, meta = reply["usage"], choice["meta_info"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert meta["completion_tokens"] == usage["completion_tokens"]
    assert meta["finish_reason"]["type"] == "stop"
    assert_counters(meta, usage["completion_tokens"])


def assert_counters(details, completion_tokens, nodes=8):
    """The first token comes from the prompt; every further one from a verify step."""
    histogram = details["spec_correct_drafts_histogram"]
    committed = sum((accepted + 1) * steps for accepted, steps in enumerate(histogram))
    assert details["spec_verify_ct"] == sum(histogram) > 0
    assert 0 <= 1 + committed - completion_tokens < len(histogram)
    assert details["spec_num_correct_drafts"] == committed - sum(histogram)
    assert details["spec_num_proposed_drafts"] == nodes * sum(histogram)
    assert details["spec_accept_length"] == pytest.approx(completion_tokens / sum(histogram))
    assert details["spec_accept_rate"] == pytest.approx((committed - sum(histogram)) / (nodes * sum(histogram)))


def test_a_streamed_chat_reply_is_the_whole_one_in_chunks(server):
    message = server.json("/v1/chat/completions", CHAT)["choices"][0]["message"]
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    events = server.events("/v1/chat/completions", CHAT | options | {"return_spec_tokens_details": True})
    *chunks, details, usage = events
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta["content"] or "" for delta in deltas) == message["content"]
    assert "".join(delta["reasoning_content"] or "" for delta in deltas) == message["reasoning_content"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "stop"]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert max(later - earlier for earlier, later in pairwise(counts)) > 1
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == counts[-1]
    assert details["choices"] == []
    assert_counters(details["sglext"]["spec_tokens_details"], counts[-1])
    # One chunk per verify step, one for the prompt's token, one to open and one to end.
    assert len(chunks) == details["sglext"]["spec_tokens_details"]["spec_verify_ct"] + 3


def test_a_plain_stream_has_neither_usage_nor_details(server):
    events = server.events("/v1/chat/completions", CHAT | {"max_tokens": 8})
    assert all(event["choices"] and event["usage"] is None and "sglext" not in event for event in events)
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_thought_can_stay_in_the_text(server):
    split = server.json("/v1/chat/completions", CHAT)["choices"][0]["message"]
    inline = server.json("/v1/chat/completions", CHAT | {"separate_reasoning": False})["choices"][0]["message"]
    assert inline["content"] == f"<think>{split['reasoning_content']}</think>{split['content']}"
    assert inline["reasoning_content"] is None


def test_neutral_fields_of_clients_are_taken(server):
    neutral = {"n": 1, "presence_penalty": 0.0, "frequency_penalty": 0, "top_p": 1, "stop": None, "user": "someone"}
    wanted = server.json("/v1/chat/completions", CHAT | {"max_tokens": 12})["choices"]
    assert server.json("/v1/chat/completions", CHAT | neutral | {"max_completion_tokens": 12})["choices"] == wanted


def test_text_completions(server):
    body = {"model": "nonce", "prompt": "def add(a, b):", "temperature": 0, "max_tokens": 12, "ignore_eos": True}
    reply = server.json("/v1/completions", body)
    assert reply["object"] == "text_completion"
    assert reply["usage"]["completion_tokens"] == 12
    streamed = server.events("/v1/completions", body)
    assert "".join(event["choices"][0]["text"] for event in streamed) == reply["choices"][0]["text"] != ""
    by_tokens = server.json("/tokenize", {"model": "nonce", "prompt": body["prompt"]})["tokens"]
    assert server.json("/v1/completions", body | {"prompt": by_tokens})["choices"] == reply["choices"]


def test_native_generation_streams_the_text_so_far(server):
    whole = server.json("/generate", NATIVE)
    assert len(whole["output_ids"]) == whole["meta_info"]["completion_tokens"] == 24
    assert whole["meta_info"]["finish_reason"] == {"type": "length", "length": 24}
    assert_counters(whole["meta_info"], 24)
    events = server.events("/generate", NATIVE)
    for earlier, later in pairwise(events):
        assert later["text"].startswith(earlier["text"])
        assert earlier["meta_info"]["finish_reason"] is None
        assert "spec_verify_ct" not in earlier["meta_info"]
    assert events[-1]["text"] == whole["text"]
    assert events[-1]["output_ids"] == whole["output_ids"]
    counters = "spec_correct_drafts_histogram"
    assert events[-1]["meta_info"][counters] == whole["meta_info"][counters]


def test_stop_strings_and_seeds(server):
    text = server.json("/generate", NATIVE)["text"]
    stop = text.strip()[3:6]
    cut = server.json("/generate", {**NATIVE, "sampling_params": NATIVE["sampling_params"] | {"stop": [stop]}})
    assert cut["text"] == text[: text.index(stop)]
    assert cut["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    sampled = CHAT | {"temperature": 1.5, "seed": 5, "max_tokens": 32}
    first, second = (server.json("/v1/chat/completions", sampled)["choices"] for _ in range(2))
    assert first == second
    assert first != server.json("/v1/chat/completions", sampled | {"seed": 6})["choices"]


def test_tokenize_counts_what_a_chat_prompt_holds(server):
    counted = server.json("/v1/tokenize", {"model": "nonce", "messages": CHAT["messages"]})
    usage = server.json("/v1/chat/completions", CHAT | {"max_tokens": 1})["usage"]
    assert counted["count"] == len(counted["tokens"]) == usage["prompt_tokens"]
    assert counted["max_model_len"] == LENGTH


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/chat/completions", CHAT | {"model": "other"}, 404, "model must be 'nonce', but got 'other'"),
        ("/v1/chat/completions", CHAT | {"max_tokens": LENGTH}, 400, f"prompt and reply must fit {LENGTH} tokens"),
        ("/v1/chat/completions", CHAT | {"messages": []}, 400, "messages: "),
        ("/v1/chat/completions", CHAT | {"temperature": -1}, 400, "temperature: "),
        ("/v1/chat/completions", CHAT | {"temperature": "hot"}, 400, "temperature: "),
        ("/v1/chat/completions", CHAT | {"max_tokens": "5"}, 400, "max_tokens: "),
        ("/v1/chat/completions", CHAT | {"presence_penalty": 0.5}, 400, "presence_penalty: "),
        ("/v1/chat/completions", CHAT | {"n": 2}, 400, "n: "),
        ("/v1/chat/completions", CHAT | {"stream": True, "return_meta_info": True}, 400, "return_meta_info must be"),
        ("/v1/completions", {"model": "nonce", "prompt": ""}, 400, "the prompt must hold at least one token"),
        ("/generate", {"input_ids": [10**6]}, 400, "token ids must be below"),
        ("/generate", {}, 400, "exactly one of text and input_ids must be given"),
        ("/generate", NATIVE | {"sampling_params": {"max_tokens": 3}}, 400, "sampling_params.max_tokens: "),
        ("/tokenize", {"model": "nonce"}, 400, "exactly one of prompt and messages must be given"),
        ("/nowhere", {}, 404, "Not Found"),
    ],
)
def test_a_wrong_request_gets_one_sentence(server, path, body, status, said):
    got, text = server.request(path, body)
    error = json.loads(text)["error"]
    assert (got, error["code"]) == (status, status)
    assert said in error["message"]
    assert "\n" not in error["message"]


def test_a_body_that_is_not_json_is_refused(server):
    status, text = server.request("/generate", raw=b"{nonsense")
    assert status == 400
    assert "Invalid JSON" in json.loads(text)["error"]["message"]


def test_metrics_count_every_token(server):
    def metric(name):
        found = re.search(rf'^sglang:{name}{{model_name="nonce"}} (\S+)$', server.request("/metrics")[1], re.MULTILINE)
        return float(found.group(1))

    names = ("generation_tokens_total", "prompt_tokens_total", "spec_verify_calls_total")
    before = [metric(name) for name in names]
    meta = server.json("/generate", NATIVE)["meta_info"]
    grown = [metric(name) - start for name, start in zip(names, before, strict=True)]
    assert grown == [24, meta["prompt_tokens"], meta["spec_verify_ct"]]
    assert metric("num_running_reqs") == metric("num_queue_reqs") == 0
    assert metric("spec_accept_length") > 1


def test_a_flush_zeroes_acceptance_and_needs_an_idle_server(server):
    server.json("/generate", NATIVE)
    assert server.json("/server_info")["internal_states"][0]["avg_spec_accept_length"] > 1
    with open_stream(server, CHAT | {"max_tokens": 900, "ignore_eos": True}):
        status, said = server.request("/flush_cache", raw=b"")
        assert (status, "pending" in said) == (400, True)
    wait_idle(server)
    assert server.request("/flush_cache")[0] == 200
    assert server.request("/health_generate")[0] == 200  # its one token comes from the prompt
    assert "avg_spec_accept_length" not in server.json("/server_info")["internal_states"][0]
