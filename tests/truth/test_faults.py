"""Every way in which a reply can fail: its own class, counted, in no average, never asked again."""

import pytest

from ddtree_tune.core.flags import failed
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import RequestError
from ddtree_tune.node.live import ChatRequest, user
from tests.truth.harness import ask, cell, load, running

STATUS = {
    **dict.fromkeys((400, 401, 403, 404, 408, 413, 422), RequestError.HTTP_4XX),
    429: RequestError.HTTP_429,
    **dict.fromkeys((500, 502, 504, 529), RequestError.HTTP_5XX),
    503: RequestError.HTTP_503,
    **dict.fromkeys((201, 204, 302), RequestError.BAD_REPLY),
}
OBJECTS = {
    "OpenAI": {"error": {"message": "overloaded", "type": "server_error", "param": None, "code": None}},
    "SGLang": {"error": {"object": "error", "message": "overloaded", "type": "InternalServerError", "code": 500}},
    "vLLM": {"error": {"message": "overloaded", "type": "InternalServerError", "param": None, "code": 500}},
    "a plain sentence": {"error": "overloaded", "error_type": "overloaded"},
}
CHAT = OBJECTS | {
    "older vLLM": {"object": "error", "message": "overloaded", "type": "InternalServerError", "code": 500}
}
REQUESTS = {
    "chat": ChatRequest(user("tell me more"), max_tokens=32),
    "generate": ChatRequest(prompt="tell me more", max_tokens=32),
}
BROKEN = {
    "error_event": "stream_error",
    "abort": "stream_error",
    "json_error": "stream_error",
    "no_done": "no_end",
    "close": "closed",
    "empty": "empty",
    "empty_stream": "empty",
    "bad_json": "bad_reply",
    "429": "http_429",
    "500": "http_5xx",
    "503": "http_503",
}


@pytest.mark.parametrize("route", REQUESTS)
@pytest.mark.parametrize("status", STATUS)
def test_every_status_has_its_class(truth, status, route):
    truth.script(fault=str(status))
    trace = ask(truth, REQUESTS[route])
    assert (trace.error, trace.status_code) == (STATUS[status], status)
    assert trace.error_detail
    assert trace.completion_tokens is None
    assert len(truth.truth()) == 1


@pytest.mark.parametrize("after", [0, 5])
@pytest.mark.parametrize(
    "shape", [("chat", name) for name in OBJECTS | CHAT] + [("generate", name) for name in OBJECTS]
)
def test_d10_an_error_object_in_a_200_stream_is_a_failure(truth, shape, after):
    route, name = shape
    truth.script(fault="error_event", fault_after=after, error=CHAT[name])
    trace = ask(truth, REQUESTS[route])
    assert (trace.error, trace.status_code) == (RequestError.STREAM_ERROR, 200)
    assert "overloaded" in trace.error_detail
    assert trace.error_at_chunk == after
    assert len(trace.text.split()) == 4 * after


@pytest.mark.parametrize("fault", BROKEN)
def test_d10_d11_one_fault_in_four_is_counted_and_in_no_average(truth, fault):
    truth.script(fault=fault, fault_every=4, ttft_s=0.06, gap_s=0.01)
    run = load(truth, cell(3, window_s=0.6))
    metrics = measure([run])
    failures = [trace for trace in run.traces if failed(trace)]
    assert len(failures) >= 2
    assert {str(trace.error) for trace in failures} == {BROKEN[fault]}
    assert metrics.requests_failed == len(failures)
    assert dict(metrics.errors)[BROKEN[fault]] == len(failures)
    assert len(failures) / len(run.traces) == pytest.approx(1 / 4, abs=0.12)
    assert "failures" in metrics.flags
    assert not metrics.scored
    assert metrics.ttft_s.mean > 0.06
    assert metrics.e2e_s.mean > 0.06 + 7 * 0.01
    assert metrics.output_tokens % 4 == 0
    asked = [record["sha"] for record in truth.truth()]
    assert len(asked) == len(set(asked)) == len(run.traces)  # nothing was asked again
    assert {trace.attempt for trace in run.traces} == {1}


def test_a_stalled_stream_is_told_from_a_slow_one(truth):
    truth.script(fault="stall", fault_every=4, gap_s=0.02)
    run = load(truth, cell(4, window_s=3.0))
    assert {trace.error for trace in run.traces if failed(trace)} == {RequestError.STALLED}
    assert "failures" in measure([run]).flags
    truth.script(gap_s=0.3)
    assert ask(truth, stall_s=0.8).ok


def test_chunks_that_are_cut_anywhere_lose_no_token(truth):
    truth.script(alphabet="é漢🙂", cut=3, held_back=2, reasoning_tokens=8, gap_s=0.01)
    metrics = measure([load(truth, cell(2, window_s=0.5))])
    assert metrics.requests_failed == 0
    assert {"output_length", "no_tokens", "failures"}.isdisjoint(metrics.flags)


def test_nobody_there_gives_no_number_at_all():
    with running() as server:
        pass
    run = load(server, cell(3, window_s=20.0))
    metrics = measure([run])
    assert run.window is None
    assert metrics.output_tps is None
    assert "failed" in dict(metrics.reasons)["output_tps"]
    assert metrics.errors == (("connect", 3),)
