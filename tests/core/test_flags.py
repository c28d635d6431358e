"""What takes a cell out of the score, and what only looks like it."""

from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core.flags import client_limited, has_step, has_trend, unsteady, wrong_output_length
from ddtree_tune.core.stats import percentile
from ddtree_tune.core.workload import Cell, ClosedLoop, Ends
from tests.builders import run

MS = 1_000_000
RAMP = np.linspace(-0.5, 0.5, 20)


def limited(late_ms, *, gap_ms=20.0):
    """The verdict on a loop that was late by so much in each sample."""
    one = replace(run(), lag_ns=tuple(round(ms * MS) for ms in late_ms))
    p99_s = percentile([ms / 1e3 for ms in late_ms], 99)
    return client_limited([one], p99_s, None if gap_ms is None else gap_ms / 1e3)


def mostly(often_ms, seldom_ms):
    """Late by so much as a rule, and by so much in one sample of twenty."""
    return [often_ms] * 95 + [seldom_ms] * 5


def test_a_client_that_is_late_now_and_then_or_always_is_limited():
    assert not limited(mostly(0.3, 9))
    assert limited(mostly(0.3, 11))
    assert limited(mostly(2.5, 2.6))  # never very late, and always late
    assert not limited(mostly(1.9, 1.9))


def test_lag_counts_against_the_chunk_gap():
    assert not limited(mostly(0.3, 45), gap_ms=100)
    assert limited(mostly(0.3, 55), gap_ms=100)
    assert not limited(mostly(7, 7), gap_ms=100)
    assert limited(mostly(11, 11), gap_ms=100)
    assert limited(mostly(0.3, 11), gap_ms=None)


def test_one_late_process_of_a_crew_is_not_hidden_by_its_punctual_fellows():
    assert limited([25.0] * 100 + [0.3] * 700)


def test_without_a_hundred_samples_only_the_mean_is_judged():
    assert not limited([0.3] * 50 + [15])
    assert limited([400.0] * 2)
    assert not limited([])


def test_a_step_is_told_from_noise():
    noise = np.random.default_rng(1).normal(100, 5, 20)
    assert not unsteady(noise)
    assert has_step(noise * np.repeat([0.5, 1], [4, 16]))  # a compilation in the first fifth
    assert has_step(noise * np.repeat([1, 0.7], [15, 5]))
    assert not has_step(noise * np.repeat([0.2, 1], [1, 19]))  # one part is an outlier
    assert not has_step(np.repeat([100.0, 105], 10))  # seen, and too small to matter
    assert not unsteady(np.full(20, 7.0))


@pytest.mark.parametrize("change", [-0.3, 0.3, 0.2])
def test_a_steady_drift_is_told_from_noise(change):
    noise = np.random.default_rng(2).normal(0, 3, 20)
    assert has_trend(100 * (1 + change * RAMP) + noise)
    assert unsteady(100 * (1 + change * RAMP) + noise)
    assert not has_trend(100 * (1 + 0.05 * RAMP))  # seen, and too small to matter


def test_noise_seldom_looks_like_a_step_or_a_drift():
    rng = np.random.default_rng(0)
    windows = [rng.normal(100, 20, 20) for _ in range(2000)]
    assert sum(map(has_step, windows)) < 10
    assert sum(map(has_trend, windows)) < 5


def test_natural_ends_ask_for_no_length():
    (trace, *_) = run().traces
    for ends, expected in ((Ends.FIXED, True), (Ends.NATURAL, False)):
        cell = Cell(60, trace.completion_tokens + 5, ClosedLoop(1), 1.0, ends=ends)
        assert wrong_output_length([trace], cell) is expected
