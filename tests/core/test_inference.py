"""Differences between settings measured in rounds: right interval, drift taken out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core.inference import contrast
from ddtree_tune.core.stats import t_quantile_95


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423), (120, 1.9799)],
)
def test_the_t_quantile_is_the_table_s(freedom, quantile):
    assert t_quantile_95(freedom) == pytest.approx(quantile, abs=1e-4)


def test_two_arms_agree_with_the_paired_t_interval():
    a, b = np.log([[130.0, 128.0, 135.0], [100.0, 101.0, 99.0]])
    got = contrast(np.asarray([a, b]), 0, 1)
    d = a - b
    half = 4.302652729911275 * d.std(ddof=1) / math.sqrt(3)
    assert got.ratio == pytest.approx(math.exp(d.mean()))
    assert got.interval == pytest.approx((math.exp(d.mean() - half), math.exp(d.mean() + half)))
    assert got.rounds == 3
    assert got.sure is True


def test_drift_between_rounds_cancels():
    true = np.log([[150.0], [120.0], [100.0]])
    drift = np.log([[1.0, 0.7, 1.4]])
    got = contrast(true + drift, 0, 2)
    assert got.ratio == pytest.approx(1.5)
    assert got.interval == pytest.approx((1.5, 1.5))


def test_noise_is_pooled_over_all_arms():
    """Two rounds of two arms leave one degree of freedom, of four arms three."""
    rng = np.random.default_rng(3)
    logs = np.log([[130.0], [125.0], [110.0], [100.0]]) + 0.01 * rng.standard_normal((4, 2))
    few, many = contrast(logs[[0, 3]], 0, 1), contrast(logs, 0, 3)
    assert few.ratio == pytest.approx(many.ratio)
    assert few.interval.high - few.interval.low != pytest.approx(many.interval.high - many.interval.low)


def test_arms_that_were_measured_once_change_nothing_of_the_others():
    rng = np.random.default_rng(4)
    logs = 0.1 * rng.standard_normal((3, 3))
    once = np.full((60, 3), np.nan)
    once[np.arange(60), rng.integers(0, 3, 60)] = rng.standard_normal(60)
    many = np.concatenate([once[:30], logs, once[30:]])
    alone, among = contrast(logs, 0, 2), contrast(many, 30, 32)
    assert among.ratio == pytest.approx(alone.ratio)
    assert among.interval == pytest.approx(alone.interval)
    lone = contrast(many, 0, 31)
    assert lone.rounds == 1
    assert lone.interval.low < lone.ratio < lone.interval.high


def test_one_round_has_no_interval():
    got = contrast(np.log([[130.0], [100.0]]), 0, 1)
    assert (got.ratio, got.interval, got.sure, got.rounds) == (pytest.approx(1.3), None, None, 1)


def test_an_arm_against_itself_is_one():
    got = contrast(np.log([[130.0, 120.0], [100.0, 101.0]]), 0, 0)
    assert got.ratio == 1.0
    assert got.sure is False


def test_arms_that_never_met_are_not_compared():
    assert contrast(np.log([[130.0, np.nan], [np.nan, 100.0]]), 0, 1) is None


def test_a_missing_value_costs_only_itself():
    logs = np.log([[130.0, 131.0, np.nan], [100.0, 101.0, 99.0], [90.0, 92.0, 91.0]])
    got = contrast(logs, 0, 1)
    assert got.rounds == 2
    assert 1.29 < got.ratio < 1.31
    assert got.interval is not None


@settings(deadline=None, max_examples=30)
@given(
    st.integers(2, 5).flatmap(
        lambda arms: st.integers(1, 4).flatmap(
            lambda rounds: st.lists(
                st.lists(st.floats(0.1, 1e4), min_size=rounds, max_size=rounds), min_size=arms, max_size=arms
            )
        )
    )
)
def test_the_inverse_comparison_is_the_inverse(values):
    logs = np.log(values)
    there, back = contrast(logs, 0, 1), contrast(logs, 1, 0)
    assert there.ratio * back.ratio == pytest.approx(1.0)
    if there.interval is not None:
        assert there.interval.low * back.interval.high == pytest.approx(1.0)


def test_the_interval_holds_the_truth_about_95_times_in_100():
    rng = np.random.default_rng(0)
    true = np.log([[120.0], [118.0], [110.0], [100.0]])
    held = 0
    for _ in range(400):
        noisy = true + rng.standard_normal((1, 2)) * 0.2 + 0.02 * rng.standard_normal((4, 2))
        got = contrast(noisy, 0, 3)
        held += got.interval.low <= 1.2 <= got.interval.high
    assert 365 <= held <= 395
