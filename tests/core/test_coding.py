"""The pass rate: one denominator each, nothing counted twice, nothing invented."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.coding import (
    Attempt,
    Outcome,
    Problem,
    Reply,
    latest,
    mean_pass_at_k,
    min_samples,
    pass_at_k,
    pass_rate,
)
from ddtree_tune.core.judge import Answered, Submission, Verdict, settle
from ddtree_tune.core.stats import wilson
from tests.coding_cases import METRICS

SCORES = {case["id"]: (case["score"], case["expect"]["metrics"]) for case in METRICS}
OUTCOMES = st.sampled_from(list(Outcome))


def attempt(problem_id, outcome, sample=0):
    return Attempt(problem_id, "", Outcome(outcome), "", None, Reply("", None, "stop"), None, None, 0, None, sample)


def rate_of(case_id):
    """The pass rate of a scored case."""
    score, _ = SCORES[case_id]
    if "records" in score:
        attempts = [attempt(problem, outcome, sample) for problem, sample, outcome in score["records"]]
    else:
        attempts = [
            attempt(problem, outcome, sample)
            for problem, outcomes in score["results"].items()
            for sample, outcome in enumerate(outcomes)
        ]
    return pass_rate(attempts, score.get("expected_problems"))


def test_every_scored_case_is_checked_here():
    assert set(SCORES) == {"S11", "S12", "S13", "S14", "S15", "S17", "S18", "S20"}


def test_both_denominators_and_every_count_are_given():
    rate, (_, expected) = rate_of("S11"), SCORES["S11"]
    assert rate.expected == expected["n_expected"]
    assert rate.passed == expected["n_pass"]
    assert rate.count(Outcome.TRUNCATED) == expected["n_truncated"]
    assert rate.count(Outcome.REQUEST_ERROR) == expected["n_request_error"]
    assert rate.over_expected == expected["pass_rate_all"]
    assert rate.over_all == expected["pass_rate_without_request_errors"]
    assert rate.over_completed == 2 / 3
    assert not rate.is_complete


def test_a_run_of_nothing_but_errors_has_no_rate():
    rate, (_, expected) = rate_of("S12"), SCORES["S12"]
    assert rate.passed == expected["n_pass"]
    assert rate.count(Outcome.REQUEST_ERROR) == expected["n_request_error"]
    assert [rate.over_all, rate.over_completed, rate.over_expected, rate.interval, rate.completed_interval] == [
        None
    ] * 5
    assert rate.is_complete is expected["valid"]


def test_a_run_that_ended_early_is_not_complete():
    rate, (_, expected) = rate_of("S13"), SCORES["S13"]
    assert (rate.done, rate.passed, rate.is_complete) == (expected["n_done"], expected["n_pass"], expected["complete"])
    assert rate.over_expected == 9 / 40


def test_a_problem_that_was_run_twice_counts_once_and_the_last_time():
    rate, (_, expected) = rate_of("S18"), SCORES["S18"]
    assert (rate.passed, rate.over_expected) == (expected["n_pass"], expected["pass_rate_all"])
    assert rate.is_complete
    assert [one.outcome for one in latest([attempt("p", "timeout"), attempt("q", "pass"), attempt("p", "pass")])] == [
        Outcome.PASS,
        Outcome.PASS,
    ]


@pytest.mark.parametrize("case_id", ["S14", "S15", "S17"])
def test_pass_at_k_is_a_mean_of_fractions_and_undefined_below_k_samples(case_id):
    score, expected = SCORES[case_id]
    outcomes = {problem: [Outcome(one) for one in ones] for problem, ones in score["results"].items()}
    for k in score["k"]:
        key = f"pass@{k}" if f"pass@{k}" in expected else f"pass@{k}_over_answered"
        assert mean_pass_at_k(outcomes, k) == pytest.approx(expected[key])
    assert min_samples(outcomes) == expected.get("min_samples", min(map(len, outcomes.values())))
    assert mean_pass_at_k({}, 1) is None


@given(st.integers(1, 12), st.data())
def test_pass_at_k_is_what_drawing_without_replacement_gives_and_grows_with_successes(n, data):
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, min(n, 5)))
    draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(c, n, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    if c:
        assert pass_at_k(c - 1, n, k) <= pass_at_k(c, n, k)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), OUTCOMES), max_size=30))
def test_counts_add_up_and_rates_stay_between_nothing_and_one(records):
    attempts = [attempt(*record) for record in records]
    rate = pass_rate(attempts)
    assert rate.done == len({problem for problem, _ in records})
    assert rate.passed <= rate.completed <= rate.attempted <= rate.done
    assert (rate.over_all is None) == (rate.attempted == 0)
    if rate.over_all is not None:
        assert rate.interval.low <= rate.over_all <= rate.interval.high
    assert pass_rate([*attempts, *attempts]) == rate


def test_wilson_holds_at_the_ends():
    assert wilson(0, 10).low == 0.0
    assert wilson(10, 10).high == 1.0
    assert math.isclose(wilson(10, 10).low, 1 - wilson(0, 10).high)


@pytest.mark.parametrize("ran", [Outcome.WRONG_ANSWER, Outcome.EXCEPTION, Outcome.TIMEOUT, Outcome.SYNTAX_ERROR])
def test_a_cut_reply_that_fails_is_truncated_and_one_that_passes_is_a_pass(ran):
    problem, reply = Problem("p", "f", "", ""), Reply("", None, "length")
    submission = Submission("code", None, "cut at the token limit")

    def settled(outcome):
        verdict = Verdict(outcome, "why", 0.1)
        return settle(Answered(problem, reply, completion_tokens=7, max_tokens=8), submission, verdict, "bwrap")

    assert settled(ran).outcome is Outcome.TRUNCATED
    assert ran.value in settled(ran).reason
    assert settled(Outcome.PASS).outcome is Outcome.PASS
    assert settled(Outcome.HARNESS_ERROR).outcome is Outcome.HARNESS_ERROR
    assert settled(Outcome.PASS).reply.finish_reason == "length"
