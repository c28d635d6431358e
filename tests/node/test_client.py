"""One request through a real socket: what is read, and what becomes of every way to fail."""

import asyncio
import socket
import threading
import time

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.errors import EngineError, LoadError
from ddtree_tune.core.trace import Phase, RequestError, SpecCounters
from ddtree_tune.node.client import ChatRequest, EngineClient
from ddtree_tune.node.live import LiveTrace, user
from tests.truth.harness import MODEL, TruthServer, ask

TEXT = "".join(f"w{i} " for i in range(32))


def test_a_reply_is_read_whole(truth):
    trace = ask(truth)
    assert trace.ok
    assert trace.text == TEXT
    assert (trace.prompt_tokens, trace.cached_tokens, trace.completion_tokens) == (8, 6, 32)
    assert trace.chunk_tokens == (4, 8, 12, 16, 20, 24, 28, 32)
    assert trace.spec == SpecCounters(8, (0, 0, 0, 8))
    assert (trace.finish_reason, trace.status_code, trace.error_detail) == ("length", 200, None)
    assert trace.sent_ns < trace.first_byte_ns <= trace.chunk_ns[0]
    assert trace.chunk_ns[-1] <= trace.end_ns


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_text_survives_any_cut_through_characters_and_lines(truth, cut, line_end):
    truth.script(alphabet="é漢🙂", cut=cut, line_end=line_end, gap_s=0)
    trace = ask(truth)
    assert trace.ok, trace.error_detail
    assert trace.text == TEXT.replace("w", "é漢🙂")
    assert trace.completion_tokens == 32


def test_the_first_chunk_is_the_first_with_text(truth):
    truth.script(held_back=3, gap_s=0.05)
    trace = ask(truth)
    sent = truth.truth()[0]["sent_ns"]
    assert len(trace.chunk_ns) == 5
    assert trace.chunk_tokens[0] == 16  # what was held back comes with the first text
    assert sent[3] <= trace.chunk_ns[0] < sent[4]
    assert trace.first_byte_ns < trace.chunk_ns[0]


def test_reasoning_counts_as_text_and_is_kept_apart(truth):
    truth.script(reasoning_tokens=28)
    trace = ask(truth)
    assert trace.reasoning.split() == TEXT.split()[:28]
    assert trace.text.split() == TEXT.split()[28:]
    assert len(trace.chunk_ns) == 8


def test_a_server_that_does_not_count_leaves_the_counts_empty(truth):
    truth.script(usage=False, spec=False)
    trace = ask(truth)
    assert trace.ok
    assert trace.text == TEXT
    assert (trace.prompt_tokens, trace.completion_tokens, trace.chunk_tokens, trace.spec) == (None,) * 4


def test_usage_at_the_end_alone_gives_the_total_alone(truth):
    truth.script(continuous=False)
    trace = ask(truth)
    assert (trace.completion_tokens, trace.chunk_tokens) == (32, None)


def test_tokens_without_text_are_in_the_total(truth):
    truth.script(tail_tokens=4)
    trace = ask(truth)
    assert trace.completion_tokens == 32
    assert trace.chunk_tokens[-1] == 28


@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [
        ("400", RequestError.HTTP_4XX, 400),
        ("429", RequestError.HTTP_429, 429),
        ("500", RequestError.HTTP_5XX, 500),
        ("503", RequestError.HTTP_503, 503),
        ("empty", RequestError.EMPTY, 200),
        ("empty_stream", RequestError.EMPTY, 200),
        ("json_error", RequestError.STREAM_ERROR, 200),
        ("error_event", RequestError.STREAM_ERROR, 200),
        ("abort", RequestError.STREAM_ERROR, 200),
        ("no_done", RequestError.NO_END, 200),
        ("close", RequestError.CLOSED, 200),
        ("bad_json", RequestError.BAD_REPLY, 200),
        ("bad_type", RequestError.BAD_REPLY, 200),
        ("stall", RequestError.STALLED, 200),
        ("slow", RequestError.TIMEOUT, 200),
    ],
)
def test_every_fault_has_its_class_and_none_raises(truth, fault, error, status):
    truth.script(fault=fault)
    trace = ask(truth, stall_s=0.4, timeout_s=1.0)
    assert (trace.error, trace.status_code) == (error, status)
    assert trace.error_detail
    in_stream = fault not in {"400", "429", "500", "503", "empty", "empty_stream", "json_error"}
    assert trace.error_at_chunk == (5 if in_stream else 0)
    assert trace.text == ("".join(f"w{i} " for i in range(20)) if in_stream else "")


def test_nobody_there_is_connect():
    trace = ask(TruthServer(_free_port()))
    assert (trace.error, trace.status_code) == (RequestError.CONNECT, None)


def test_a_connection_dropped_before_any_answer_is_closed():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drop():
            connection, _ = listener.accept()
            connection.recv(10)
            connection.close()

        thread = threading.Thread(target=drop)
        thread.start()
        trace = ask(TruthServer(listener.getsockname()[1]))
        thread.join()
    assert trace.error is RequestError.CLOSED


def test_a_cancelled_call_propagates_and_its_tokens_stay(truth):
    truth.script(gap_s=0.05)
    live = LiveTrace("r", Phase.WINDOW, "words", "0" * 16)

    async def cut_off():
        async with EngineClient(Endpoint(truth.base_url, MODEL), timeout_s=5, stall_s=2) as client:
            request = ChatRequest(user("go on"), max_tokens=64)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.chat(request, request_id="r", phase=Phase.WINDOW, family="words", live=live)

    asyncio.run(cut_off())
    trace = live.freeze(RequestError.CANCELLED)
    assert 1 <= len(trace.chunk_ns) < 16
    assert trace.completion_tokens == trace.chunk_tokens[-1] == 4 * len(trace.chunk_ns)


def test_the_native_endpoint_streams_the_same_reply(truth):
    trace = ask(truth, ChatRequest(prompt="tell me more", max_tokens=32, seed=3, ignore_eos=True))
    assert trace.ok, trace.error_detail
    assert trace.text == TEXT
    assert trace.chunk_tokens == (4, 8, 12, 16, 20, 24, 28, 32)
    assert trace.spec == SpecCounters(8, (0, 0, 0, 8))
    assert (trace.prompt_tokens, trace.cached_tokens, trace.finish_reason) == (8, 6, "length")
    sampling = truth.truth()[0]["body"]["sampling_params"]
    assert sampling == {
        "max_new_tokens": 32,
        "temperature": 0.0,
        "top_p": 1.0,
        "ignore_eos": True,
        "sampling_seed": 3,
    }


def test_increments_where_the_whole_text_is_due_are_refused(truth):
    truth.script(fault="increments")
    trace = ask(truth, ChatRequest(prompt="tell me more", max_tokens=32))
    assert trace.error is RequestError.BAD_REPLY
    assert "incremental" in trace.error_detail


def test_the_request_says_what_it_must_and_nothing_more(truth):
    everything = ChatRequest(user("a"), ignore_eos=True, seed=5, extra=(("top_k", 1),))
    ask(truth)
    ask(truth, everything)
    ask(truth, everything, extensions=False)
    plain, full, strict = (request["body"] for request in truth.truth())
    assert plain["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert plain["return_spec_tokens_details"] is True
    assert not {"ignore_eos", "seed", "top_k"} & set(plain)
    assert (full["ignore_eos"], full["seed"], full["top_k"]) == (True, 5, 1)
    assert not {"return_spec_tokens_details", "ignore_eos"} & set(strict)
    assert strict["stream_options"] == {"include_usage": True}


def test_a_refused_field_is_a_failed_request_and_not_asked_again(truth):
    truth.script(fault="400")
    trace = ask(truth)
    assert trace.error is RequestError.HTTP_4XX
    assert "refused" in trace.error_detail
    assert len(truth.truth()) == 1


def test_without_streaming_the_reply_is_whole(truth):
    reply = _with_client(truth, lambda client: client.chat_once(ChatRequest(user("a b"), max_tokens=8)))
    assert reply["choices"][0]["meta_info"]["spec_verify_ct"] == 2
    assert reply["usage"]["completion_tokens"] == 8
    native = _with_client(truth, lambda client: client.chat_once(ChatRequest(prompt="a b", max_tokens=8)))
    assert native["meta_info"]["completion_tokens"] == 8


@pytest.mark.parametrize("tokenize", ["messages", "prompt"])
def test_the_servers_own_count_includes_its_template(truth, tokenize):
    truth.script(tokenize=tokenize)
    assert _with_client(truth, lambda client: client.count_tokens(user("one two, three"))) == 4 + 5
    assert len(truth.truth()) == 1  # one request taught the template


def test_a_server_that_cannot_count_says_so_once(truth):
    truth.script(tokenize=None)

    async def twice(client):
        return await client.count_tokens(user("one")), await client.count_tokens(user("two"))

    assert _with_client(truth, twice) == (None, None)
    assert len(truth.truth()) == 1


def test_a_count_that_usage_contradicts_is_not_used(truth):
    truth.script(tokenize="messages", prompt_scale=2.0)
    assert _with_client(truth, lambda client: client.count_tokens(user("one two"))) is None


def test_pages_are_fetched_and_failures_name_their_address(truth):
    assert _with_client(truth, lambda client: client.get_text("/health")) == ""
    models = _with_client(truth, lambda client: client.get_json("/v1/models"))
    assert models["data"][0]["id"] == MODEL
    with pytest.raises(EngineError, match="must answer 200, but got 404"):
        _with_client(truth, lambda client: client.get_json("/nothing"))
    with pytest.raises(EngineError, match=r"cannot GET http://127\.0\.0\.1:"):
        _with_client(TruthServer(_free_port()), lambda client: client.get_text("/health"))
    with pytest.raises(EngineError, match="JSONDecodeError"):
        _with_client(truth, lambda client: client.get_json("/health"))


def test_a_request_holds_messages_or_a_prompt():
    with pytest.raises(LoadError, match="either messages or a prompt"):
        ChatRequest()
    with pytest.raises(LoadError, match="either messages or a prompt"):
        ChatRequest(user("a"), prompt="a")
    assert ChatRequest(user("a")).sha != ChatRequest(user("b")).sha
    assert ChatRequest(user("a")).sha == ChatRequest(user("a"), max_tokens=7).sha


def test_clients_are_cheap_to_make():
    start = time.perf_counter()
    clients = [EngineClient(Endpoint("http://127.0.0.1:9", "m"), timeout_s=1, stall_s=1) for _ in range(64)]
    assert time.perf_counter() - start < 1.0  # an SSL context for each would take 3 s
    assert len(clients) == 64


def _with_client(server, call):
    async def once():
        async with EngineClient(Endpoint(server.base_url, MODEL), timeout_s=5, stall_s=2) as client:
            return await call(client)

    return asyncio.run(once())


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
