"""One request against recorded send times: counts are exact, no time is early, none is very late.

Times are checked on two profiles that differ in opposite ways, so that a metric which is scaled,
shifted or mixed up cannot pass both. Lower bounds are strict: a chunk cannot arrive before it was
sent. Upper bounds are slack, for the machine is shared.
"""

import numpy as np
import pytest

from ddtree_tune.core import timing
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import CellRun, RequestError, Window
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.node.live import ChatRequest, user
from tests.truth.harness import ask

LATE_S = 0.2
"""Slack of an upper bound."""
PROFILES = {"waits, then runs": (0.25, 0.01), "starts, then crawls": (0.02, 0.06)}


def around(trace, tokens):
    """Metrics of one request whose window holds all of it."""
    window = Window(trace.sent_ns, trace.end_ns + 1)
    return measure([CellRun(Cell(trace.prompt_tokens or 8, tokens, ClosedLoop(1), 0.01), 0, window, (trace,))])


@pytest.mark.parametrize("profile", PROFILES)
def test_times_follow_what_was_really_sent(truth, profile):
    ttft_s, gap_s = PROFILES[profile]
    truth.script(ttft_s=ttft_s, gap_s=gap_s)
    trace = ask(truth)
    (record,) = truth.truth()
    sent, arrived = np.array(record["sent_ns"]), np.array(trace.chunk_ns)
    assert len(arrived) == len(sent) == 8
    assert (arrived >= sent).all()
    assert np.median(arrived - sent) < LATE_S * 1e9
    assert record["end_ns"] <= trace.end_ns
    assert trace.sent_ns <= record["received_ns"]
    assert ttft_s <= timing.ttft_s(trace) < ttft_s + LATE_S
    assert timing.ttft_s(trace) >= (sent[0] - trace.sent_ns) / 1e9
    assert timing.e2e_s(trace) >= (sent[-1] - trace.sent_ns) / 1e9
    truly = (sent[-1] - sent[0]) / 1e9 / 28
    assert timing.tpot_s(trace) == pytest.approx(truly, abs=LATE_S / 28)
    assert timing.tpot_s(trace) > 0.7 * gap_s / 4


def test_d1_chunks_of_several_tokens_are_not_tokens(truth):
    truth.script(gap_s=0.02)
    trace = ask(truth, ChatRequest(user("go"), max_tokens=256))
    metrics = around(trace, 256)
    assert metrics.output_tokens == 256
    assert metrics.icl_s.count == 63
    assert metrics.itl_s.count == 252
    sent = truth.truth()[0]["sent_ns"]
    decode_tps = 252 / ((sent[-1] - sent[0]) / 1e9)
    assert metrics.user_tps == pytest.approx(decode_tps, rel=0.1)
    assert metrics.user_tps > 100  # chunks counted as tokens would give 50
    assert metrics.itl_s.mean == pytest.approx(metrics.tpot_s.mean)
    assert metrics.accept_len == 4.0


def test_uneven_steps_are_attributed_where_they_arrived(truth):
    steps = [1, 7, 2, 5, 1]
    truth.script(steps=steps)
    trace = ask(truth)
    assert list(timing.new_tokens(trace)) == [1, 7, 2, 5, 1, 1, 7, 2, 5, 1]
    assert around(trace, 32).accept_len == pytest.approx(32 / 10)
    truth.script(steps=steps, continuous=False)
    spread = ask(truth)
    assert timing.new_tokens(spread).sum() == 32
    assert set(timing.new_tokens(spread)) <= {3, 4}


def test_d3_without_usage_tokens_are_unknown_and_not_the_requested_length(truth):
    truth.script(stop_after=10, usage=False)
    trace = ask(truth, ChatRequest(user("go"), max_tokens=256))
    metrics = around(trace, 256)
    assert trace.finish_reason == "stop"
    assert trace.completion_tokens is None
    assert (metrics.output_tokens, metrics.output_tps, metrics.user_tps) == (None, None, None)
    assert "no_tokens" in metrics.flags
    assert not metrics.scored


def test_d14_reasoning_starts_the_clock(truth):
    truth.script(reasoning_tokens=124, gap_s=0.01)
    trace = ask(truth, ChatRequest(user("go"), max_tokens=128))
    sent = truth.truth()[0]["sent_ns"]
    assert trace.text.split() == ["w124", "w125", "w126", "w127"]
    assert len(trace.reasoning.split()) == 124
    assert trace.chunk_ns[0] >= sent[0]
    assert timing.ttft_s(trace) < (sent[-1] - trace.sent_ns) / 1e9 / 2
    assert trace.completion_tokens == 128


def test_held_back_text_delays_the_first_token_and_loses_none(truth):
    truth.script(held_back=4, gap_s=0.03, alphabet="漢")
    trace = ask(truth)
    sent = truth.truth()[0]["sent_ns"]
    assert timing.ttft_s(trace) >= (sent[4] - trace.sent_ns) / 1e9
    assert list(timing.new_tokens(trace)) == [20, 4, 4, 4]
    assert around(trace, 32).output_tokens == 32


def test_d21_acceptance_is_this_requests_and_not_the_servers_lifetime(truth):
    truth.script(steps=[2, 3])
    trace = ask(truth, ChatRequest(user("go"), max_tokens=50))
    assert around(trace, 50).accept_len == pytest.approx(2.5)  # server_info says 6.0
    truth.script(steps=[2, 3], histogram=False)
    bare = ask(truth, ChatRequest(user("go"), max_tokens=50))
    assert bare.spec.histogram == ()
    assert around(bare, 50).accept_len == pytest.approx(2.5)
    truth.script(spec=False)
    silent = around(ask(truth), 32)
    assert silent.accept_len is None
    assert "verify steps" in dict(silent.reasons)["accept_len"]


@pytest.mark.parametrize("fault", ["error_event", "no_done", "empty", "empty_stream"])
def test_d10_a_broken_200_is_a_failure_and_its_tokens_do_not_count(truth, fault):
    truth.script(fault=fault)
    trace = ask(truth)
    metrics = around(trace, 32)
    assert trace.error in {RequestError.STREAM_ERROR, RequestError.NO_END, RequestError.EMPTY}
    assert metrics.requests_failed == 1
    assert metrics.output_tps is None
    assert "failures" in metrics.flags


def test_a_stop_before_the_length_is_seen_as_unequal_work(truth):
    truth.script(stop_after=20)
    metrics = around(ask(truth), 32)
    assert metrics.output_tokens == 20
    assert "output_length" in metrics.flags
    assert "output_length" not in around(ask(truth, ChatRequest(user("go"), max_tokens=20)), 20).flags
