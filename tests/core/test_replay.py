"""A replay is the greedy run of every (budget, topk), step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.replay import Replay, replay, replay_chain, smallest_enough
from ddtree_tune.core.replay_table import ReplayReport
from tests.drafts import request_of, run_by_hand, trace_of

BUDGETS = (9, 1, 2, 3, 5, 24)


@given(
    rng=st.integers(0, 2**32).map(np.random.default_rng),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 4)),
    reply=st.integers(2, 14),
    after=st.integers(0, 7),
    levels=st.sampled_from([None, 1, 3]),
)
def test_a_replay_equals_a_run_with_a_tree_at_every_step(rng, shape, reply, after, levels):
    depth, topk = shape
    request = request_of(rng, reply=reply, depth=depth, topk=topk, after=after, levels=levels)
    topks = range(1, topk + 1)
    found = replay(trace_of([request]), BUDGETS, topks)
    expected = [[run_by_hand(request, budget, width) for width in topks] for budget in BUDGETS]
    np.testing.assert_array_equal(found.histograms[0], expected)


@pytest.fixture
def trace():
    rng = np.random.default_rng(3)
    return trace_of([request_of(rng, reply=40, depth=5, topk=3, after=6, name=str(i)) for i in range(8)])


def test_acceptance_is_pooled_over_the_requests(trace):
    found = replay(trace, (4, 8), (1, 3))
    by_hand = sum(run_by_hand(request, 8, 3) for request in trace.requests)
    assert found.accept_len[1, 1] == pytest.approx(sum((i + 1) * n for i, n in enumerate(by_hand)) / by_hand.sum())
    assert found.accept_len[1, 1] > found.accept_len[0, 0] > 1


def test_topk_1_is_the_chain_of_its_budget(trace):
    found = replay(trace, (2, 5, 50), (1,))
    assert found.accept_len[1, 0] == found.accept_len[2, 0] == replay_chain(trace).accept_len[0, 0]
    assert found.accept_len[0, 0] < found.accept_len[1, 0]


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    easy, hard = np.asarray([0.1, 0.2, 0.7]), np.asarray([0.6, 0.3, 0.1])

    def plane(count):
        rows = [rng.multinomial(20, easy * mix + hard * (1 - mix)) for mix in rng.random(count)]
        return Replay((4,), (2,), np.asarray(rows)[:, None, None])

    truth = plane(20_000).accept_len[0, 0]
    bounds = [plane(5).interval for _ in range(400)]
    covered = np.mean([low[0, 0] <= truth <= high[0, 0] for low, high in bounds])
    assert 0.92 <= covered <= 0.98


def test_two_requests_have_no_interval(trace):
    assert replay(trace_of(trace.requests[:2]), (4,), (2,)).interval is None
    assert replay(trace_of(trace.requests[:3]), (4,), (2,)).interval is not None


@pytest.mark.parametrize(
    ("budgets", "topks", "sentence"),
    [
        ((4,), (4,), "topks must be at most the 3 candidates that the trace keeps, but got 4"),
        ((0,), (1,), r"budgets and topks must be at least 1, but got \[0\] and \[1\]"),
        ((), (1,), "budgets and topks must be at least 1"),
    ],
)
def test_what_cannot_be_replayed_is_refused(trace, budgets, topks, sentence):
    with pytest.raises(SpecError, match=sentence):
        replay(trace, budgets, topks)


def test_saturation_is_the_first_value_near_the_last():
    assert smallest_enough(np.asarray([2.0, 3.9, 3.97, 4.0])) == 2


def test_the_report_says_the_plane_in_words_and_numbers(trace):
    report = ReplayReport(trace, (4, 2), (3, 1))
    text = "\n".join(report.lines())
    plane = replay(trace, (2, 4), (1, 3))
    assert f"{plane.accept_len[1, 1]:.2f} ±" in text
    assert "Context 60" in text
    assert "8 requests, 312 positions" in text
    (part,) = report.fields()["contexts"]
    assert (part["budgets"], part["topks"]) == ([2, 4], [1, 3])
    assert part["accept_len"] == plane.accept_len.tolist()
    assert part["accept_len_low"][1][1] < part["accept_len"][1][1] < part["accept_len_high"][1][1]
    assert part["chain"]["accept_len"] == replay_chain(trace).accept_len.tolist()
