"""How a cell runs: its window, its slots, its arrivals, its ends."""

import time
from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core.errors import EngineError, FailureClass, LoadError
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase, RequestError
from ddtree_tune.node.prompts import Prompt
from ddtree_tune.node.watch import Limits
from tests.truth.harness import QUICK, assert_real, cell, load, tokens_sent_inside, words


def test_what_is_cut_off_after_the_window_is_cancelled_and_not_failed(truth):
    truth.script(gap_s=0.1)
    run = load(truth, cell(3, output=40, window_s=0.3), limits=replace(QUICK, drain_s=0.05))
    cut_off = [trace for trace in run.traces if trace.error is RequestError.CANCELLED]
    metrics = measure([run])
    assert len(cut_off) == 3
    assert metrics.requests_failed == 0
    assert metrics.errors == (("cancelled", 3),)
    assert all(trace.chunk_tokens for trace in cut_off if trace.chunk_ns)
    assert metrics.output_tokens == pytest.approx(tokens_sent_inside(truth, run.window), abs=24)


def test_the_window_waits_for_the_requests_it_was_asked_for(truth):
    run = load(truth, cell(2, window_s=0.2, min_requests=12))
    assert_real(run)
    inside = [t for t in run.traces if t.ok and t.sent_ns >= run.window.start_ns and t.end_ns < run.window.end_ns]
    assert len(inside) >= 12
    assert "short" not in measure([run]).flags
    impatient = load(truth, cell(1, window_s=0.2, min_requests=10_000))
    assert impatient.window.seconds == pytest.approx(0.8, abs=0.2)
    assert "short" in measure([impatient]).flags


def test_the_slots_do_not_run_in_lockstep(truth):
    truth.script(gap_s=0.05)
    run = load(truth, cell(8, window_s=0.5))
    starts = np.sort([trace.sent_ns for trace in run.traces if trace.phase is Phase.WINDOW][:8]) / 1e9
    assert np.diff(starts).max() < 0.25  # a slot's turn takes 0.36 s
    assert starts[-1] - starts[0] > 0.15


def test_a_hang_ends_the_cell_with_its_class(truth):
    truth.script(fault="stall", fault_every=1)
    start = time.perf_counter()
    with pytest.raises(EngineError, match=r"a token must come within 0\.5 s") as caught:
        load(truth, cell(2, window_s=20.0), limits=Limits(stall_s=0.5))
    assert caught.value.failure is FailureClass.HANG
    assert time.perf_counter() - start < 5


def test_keepalive_comments_do_not_hide_a_hang(truth):
    truth.script(fault="slow")
    with pytest.raises(EngineError, match="a token must come within"):
        load(truth, cell(2, window_s=20.0), limits=Limits(stall_s=0.5))


def test_a_prompt_that_cannot_be_cut_ends_the_cell_as_a_load_error(truth):
    async def cut(phase, index):
        raise LoadError("no task fits")

    with pytest.raises(LoadError, match="no task fits"):
        load(truth, cell(2), cut=cut)

    async def later(phase, index):
        if phase is Phase.WINDOW:
            raise LoadError("no task fits the window")
        return Prompt(f"warm {index}", "words", 8)

    with pytest.raises(LoadError, match="no task fits the window"):
        load(truth, cell(2), cut=later)


def test_requests_are_told_apart_and_sorted_by_time(truth):
    run = load(truth, cell(4))
    assert len({trace.request_id for trace in run.traces}) == len(run.traces)
    assert [t.sent_ns for t in run.traces] == sorted(t.sent_ns for t in run.traces)
    assert {request["body"]["ignore_eos"] for request in truth.truth()} == {True}
    assert len({request["sha"] for request in truth.truth()}) == len(truth.truth())
    assert run.wall_utc.endswith("+00:00")
    assert {trace.prompt_family for trace in run.traces} == {"words"}
    assert words(run.cell) is not None
