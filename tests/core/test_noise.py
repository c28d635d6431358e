"""Drift between trials is learned from repeats, beyond what their own intervals explain."""

import math

import numpy as np
import pytest

from ddtree_tune.core.noise import DRIFT, LEAST, drift
from ddtree_tune.core.step_time import Estimate


def repeats(true, own, groups, each, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [Estimate(level + rng.normal(0, math.hypot(true, own)), own) for _ in range(each)]
        for level in rng.normal(0, 1, groups)
    ]


def test_without_repeats_it_is_what_was_assumed():
    assert drift([]) == pytest.approx(DRIFT)
    assert drift([[Estimate(0.3, 0.01)], [Estimate(0.1, 0.01)]]) == pytest.approx(DRIFT)


@pytest.mark.parametrize("true", [0.01, 0.03, 0.08])
def test_many_repeats_tell_the_truth(true):
    assert drift(repeats(true, 0.02, 60, 4)) == pytest.approx(true, rel=0.2)


def test_noise_that_the_intervals_explain_is_no_drift():
    assert drift(repeats(0.0, 0.05, 60, 4)) < 0.02
    assert drift([[Estimate(0.0, 0.5)] * 9]) == LEAST


def test_one_pair_moves_it_a_little():
    pair = [[Estimate(0.0, 0.0), Estimate(0.1, 0.0)]]
    assert DRIFT < drift(pair) < 0.04
