"""Requests that come at random, however long replies take."""

import numpy as np
import pytest

from ddtree_tune.core.errors import EngineError, FailureClass, LoadError
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase
from ddtree_tune.core.workload import OpenLoop
from ddtree_tune.node.watch import Limits
from tests.truth.harness import cell, load


def test_open_loop_arrivals_are_random_at_the_asked_rate_and_the_same_for_every_arm(truth):
    shape = cell(arrival=OpenLoop(60.0), output=8, window_s=1.5)
    one, other = load(truth, shape), load(truth, shape)
    sent = np.array([trace.sent_ns for trace in one.traces]) / 1e9
    gaps = np.diff(sent)
    assert len(sent) / (sent[-1] - sent[0]) == pytest.approx(60, rel=0.3)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.35)  # Poisson: the spread is the mean
    again = np.diff(np.array([trace.sent_ns for trace in other.traces]) / 1e9)
    size = min(len(gaps), len(again), 40)
    assert np.corrcoef(gaps[:size], again[:size])[0, 1] > 0.5
    metrics = measure([one])
    assert metrics.concurrency is None
    assert metrics.requests_failed == 0
    assert metrics.requests_ok > 40


def test_an_open_loop_that_runs_away_is_a_load_error(truth):
    truth.script(fault="stall", fault_after=1)
    with pytest.raises(LoadError, match="lower it"):
        load(truth, cell(arrival=OpenLoop(2000.0), window_s=0.2), limits=Limits(stall_s=20.0))


def test_nobody_owes_a_token_between_two_arrivals(truth):
    truth.script(gap_s=0.002)
    run = load(truth, cell(arrival=OpenLoop(2.0), output=8, window_s=3.0), limits=Limits(stall_s=0.4))
    sent = np.array([trace.sent_ns for trace in run.traces]) / 1e9
    assert np.diff(sent).max() > 0.4  # idle for longer than a hang takes
    assert measure([run]).requests_failed == 0
    assert {trace.phase for trace in run.traces} == set(Phase)


def test_a_hang_of_an_open_loop_is_a_hang(truth):
    truth.script(fault="stall", fault_after=0)
    with pytest.raises(EngineError, match="a token must come within") as caught:
        load(truth, cell(arrival=OpenLoop(20.0), window_s=5.0), limits=Limits(stall_s=0.5))
    assert caught.value.failure is FailureClass.HANG
