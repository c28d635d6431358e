"""Small statistics, against simulation and by hand."""

import math

import numpy as np
import pytest

from ddtree_tune.core.stats import repeats_interval


def test_three_repeats_give_students_interval_over_logarithms():
    low, high = repeats_interval([90.0, 100.0, 110.0])
    logs = [math.log(value) for value in (90, 100, 110)]
    half = 4.302653 * np.std(logs, ddof=1) / math.sqrt(3)
    assert low == pytest.approx(math.exp(np.mean(logs) - half), rel=1e-5)
    assert high == pytest.approx(math.exp(np.mean(logs) + half), rel=1e-5)


@pytest.mark.parametrize("repeats", [3, 4, 5, 6, 10])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(repeats):
    rng = np.random.default_rng(1)
    samples = np.exp(0.05 * rng.standard_normal((400, repeats)))
    inside = sum(low <= 1 <= high for low, high in map(repeats_interval, samples.tolist()))
    assert inside / 400 > 0.91


def test_fewer_than_three_repeats_have_none():
    assert repeats_interval([1.0, 2.0]) is None
