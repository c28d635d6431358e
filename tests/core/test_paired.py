"""Two settings on the same problems: published intervals, the exact test, and nothing paired twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.coding import Outcome, count_outcomes
from ddtree_tune.core.paired import Paired, binomial_tail, pair_outcomes, paired
from tests.core.test_coding import OUTCOMES, SCORES, attempt


def test_one_flipped_problem_of_five_is_no_difference():
    score, expected = SCORES["S20"]
    one, eight = ([Outcome(outcome) for outcome in run] for run in score["runs"].values())
    pair = pair_outcomes(zip(one, eight, strict=True))
    assert (pair.agree, pair.discordant) == (expected["agree"], expected["discordant"])
    assert pair.p_value == expected["mcnemar_exact_p"]
    assert pair.difference == pytest.approx(-0.2)
    assert count_outcomes(one).over_all == expected["pass_rate_1"]
    assert count_outcomes(eight).over_all == expected["pass_rate_8"]
    assert count_outcomes(one).interval == pytest.approx(expected["wilson95_1"], abs=1e-4)


def test_a_comparison_is_over_problems_that_both_sides_graded():
    first = [attempt("a", "pass"), attempt("b", "pass"), attempt("c", "request_error"), attempt("d", "truncated")]
    second = [
        attempt("b", "timeout"),
        attempt("a", "pass"),
        attempt("c", "pass"),
        attempt("e", "pass"),
        attempt("d", "pass"),
    ]
    pair = paired(first, second)
    assert (pair.both, pair.only_first, pair.only_second, pair.neither) == (1, 1, 1, 0)
    assert paired([], second).difference is None
    assert paired([], second).p_value == 1.0


def test_the_exact_test_is_the_binomial_at_one_half():
    # 1 of 8: 2 * (1 + 8) / 256; computed by hand.
    assert pair_outcomes([(Outcome.PASS, Outcome.TIMEOUT)] * 7 + [(Outcome.TIMEOUT, Outcome.PASS)]).p_value == 18 / 256
    many = pair_outcomes([(Outcome.PASS, Outcome.TIMEOUT)] * 2000)
    assert many.p_value == pytest.approx(0.0)


@given(st.lists(st.tuples(OUTCOMES, OUTCOMES), min_size=1, max_size=40))
def test_a_comparison_does_not_depend_on_its_direction(pairs):
    pair, mirrored = pair_outcomes(pairs), pair_outcomes([(other, one) for one, other in pairs])
    assert pair.p_value == mirrored.p_value
    assert pair.difference == -mirrored.difference
    assert 0 < pair.p_value <= 1


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        # Altman et al., Statistics with Confidence (2000), table 6.2: 19 of 41 against 14 of 41.
        (Paired(14, 5, 0, 22), -0.226, -0.011),
        # Bentur et al. 2009, as in Fagerland, Lydersen and Laake 2014: 2 of 21 against 8 of 21.
        (Paired(1, 1, 7, 12), 0.026, 0.507),
    ],
)
def test_the_interval_is_the_published_one(table, low, high):
    assert table.interval == pytest.approx((low, high), abs=6e-4)


def test_no_flip_still_has_an_interval_with_a_width():
    assert paired([], []).interval is None
    assert Paired(20, 0, 0, 5).interval.high == pytest.approx(0.108, abs=1e-3)
    assert Paired(25, 0, 0, 0).interval.low < 0


@given(st.lists(st.integers(0, 30), min_size=4, max_size=4).filter(any))
def test_the_interval_holds_the_difference_and_mirrors_with_it(cells):
    both, first, second, neither = cells
    table, mirrored = Paired(both, first, second, neither), Paired(both, second, first, neither)
    assert -1 <= table.interval.low <= table.difference <= table.interval.high <= 1
    assert table.interval == pytest.approx((-mirrored.interval.high, -mirrored.interval.low))


def test_samples_of_one_problem_are_one_pair():
    first = [attempt("a", one, n) for n, one in enumerate(["pass", "pass", "timeout", "pass"])]
    second = [attempt("a", one, n) for n, one in enumerate(["timeout", "request_error", "pass", "no_code"])]
    assert paired(first, second) == Paired(0, 1, 0, 0)
    assert paired(first, [attempt("a", "pass"), attempt("a", "timeout", 1)]) == Paired(1, 0, 0, 0)


def test_the_tail_is_of_fair_coins():
    assert [binomial_tail(k, 3) for k in range(5)] == [1, 7 / 8, 4 / 8, 1 / 8, 0]
    assert binomial_tail(0, 0) == 1
