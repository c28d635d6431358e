"""Several goals: what a trial reaches of each, how they are blended, and which compromises are shown first."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ddtree_tune.core.coding import count_outcomes
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.frontier import undominated
from ddtree_tune.core.goals import base_quantities, blended, ends_first, latency_gain, pass_gain, quantity
from ddtree_tune.core.metrics import Summary
from ddtree_tune.core.objective import Verdict, Yardstick, observe
from ddtree_tune.core.objective_spec import Goal
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.spec import SweepSpec
from tests.builders import NONE, SPEC, attempts, proposal, record, tree

GOALS = SPEC.replace("concurrency: [1, 8]}", "concurrency: [1, 8], min_requests: 20}")
BIG = tree(16, 4, 64)
TABLES = arrays.arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(2, 3)), elements=st.floats(-1, 1, width=16))


def sweep(*goals, text=GOALS):
    return SweepSpec.parse(f"{text}\nobjective: {{goals: [{', '.join(goals)}]}}", "s.yaml")


def with_ttft(one, p95, p50=0.1, count=100):
    """A trial with a TTFT by cell; ``p95`` is one number for all, or one by (context, concurrency)."""
    seconds = p95 if callable(p95) else lambda *_: p95
    cells = []
    for cell in one.cells:
        known = Summary(count, 0.1, p50, seconds(cell.metrics.context, cell.metrics.concurrency), None)
        cells.append(CellResult(replace(cell.metrics, ttft_s=known), ()))
    return replace(one, cells=tuple(cells))


def pair(spec, base_p95, mine_p95, **shape):
    return with_ttft(record(spec, proposal(1, NONE)), base_p95, **shape), with_ttft(
        record(spec, proposal(2, BIG)), mine_p95, **shape
    )


def test_a_latency_is_the_weighted_mean_of_how_much_shorter_it_is():
    spec = sweep("speedup", "ttft_p95")
    weights = {cell.cell_id: 3.0 if cell.context == 512 else 1.0 for cell in spec.load.cells()}
    base, mine = pair(spec, 0.4, lambda context, users: 0.2 if context == 512 else 0.4)
    known = base_quantities([base], spec.objective.others)
    got = latency_gain(mine, Goal.TTFT, known[Goal.TTFT], weights)
    assert got.log == pytest.approx(3 * math.log(2) / 4)
    assert latency_gain(base, Goal.TTFT, known[Goal.TTFT], weights).log == pytest.approx(0)


def test_the_noise_of_a_percentile_is_that_of_repeated_samples_with_an_exponential_tail():
    """A shift does not change the spread of a quantile; its share of the quantile does."""
    rng = np.random.default_rng(0)
    for shift, count in ((0.0, 400), (2.0, 400), (0.0, 3000)):
        samples = shift + rng.exponential(1.0, (1500, count))
        p95s, p50s = (np.percentile(samples, q, axis=1) for q in (95, 50))
        spec = sweep("speedup", "ttft_p95")
        _, mine = pair(spec, 1.0, float(np.median(p95s)), p50=float(np.median(p50s)), count=count)
        one = spec.load.cells()[0].cell_id
        got = latency_gain(mine, Goal.TTFT, {one: 1.0}, {one: 1.0})
        assert got.deviation == pytest.approx(float(np.log(p95s).std()), rel=0.12)


def test_a_percentile_that_too_few_requests_tell_leaves_no_observation_of_several_goals():
    spec = sweep("speedup", "ttft_p95")
    base, mine = pair(spec, 0.4, 0.2)
    (unknown,) = (with_ttft(mine, lambda context, users: None if users == 8 else 0.2),)
    yardstick = Yardstick.of(spec, [base])
    seen = observe(mine, yardstick)
    assert seen.verdict is Verdict.MEASURED
    assert [goal.log for goal in seen.others] == [pytest.approx(math.log(2))]
    lacking = observe(unknown, yardstick)
    assert (lacking.verdict, lacking.value, lacking.reason) == (Verdict.UNSCORED, None, "no ttft_p95 is known")
    alone = SweepSpec.parse(GOALS, "s.yaml")
    assert observe(unknown, Yardstick.of(alone, [base])).verdict is Verdict.MEASURED


def test_problems_solved_are_compared_for_none_passed_too():
    rates = [count_outcomes(one.outcome for one in attempts(passed)) for passed in (0, 10, 20)]
    none, half, all_of_them = (pass_gain(one, rates[1]) for one in rates)
    assert half.log == pytest.approx(0)
    assert all_of_them.log == pytest.approx(math.log(21 / 11))
    assert none.log == pytest.approx(math.log(1 / 11))
    assert none.deviation > half.deviation > all_of_them.deviation > 0
    assert pass_gain(None, rates[1]) is None
    assert pass_gain(rates[1], None) is None


@given(TABLES, st.integers(0, 2**32 - 1))
def test_whatever_the_shares_a_setting_with_the_best_blend_is_beaten_by_nothing(values, seed):
    shares = np.random.default_rng(seed).dirichlet(np.ones(values.shape[1]))
    scores = blended(values, shares, values.max(axis=0), np.maximum(np.ptp(values, axis=0), 1e-3))
    assert (undominated(values) & (scores >= scores.max() - 1e-12)).any()
    assert scores.max() <= 1e-12


def test_the_shares_choose_between_the_ends_and_what_lies_between():
    values = np.asarray([[1.0, 0.0], [0.6, 0.6], [0.0, 1.0]])
    ones = np.ones(2)
    picked = [int(blended(values, np.asarray([w, 1 - w]), ones, ones).argmax()) for w in (0.9, 0.5, 0.1)]
    assert picked == [0, 1, 2]


@given(TABLES)
def test_the_ends_come_first_and_every_compromise_comes_once(values):
    order = ends_first(values)
    assert sorted(order) == list(range(len(values)))
    ends = {int(at) for at in values.argmax(axis=0)}
    assert set(order[: len(ends)]) == ends


def test_after_the_ends_comes_the_widest_gap():
    values = np.asarray([[1.0, 0.0], [0.95, 0.05], [0.5, 0.5], [0.0, 1.0]])
    assert ends_first(values) == [0, 3, 2, 1]


def test_a_quantity_is_taken_of_scored_cells_of_complete_trials_alone():
    spec = sweep("speedup", "ttft_p95")
    _, mine = pair(spec, 0.4, 0.2)
    assert set(quantity(Goal.TTFT)(mine).values()) == {5.0}
    unscored = record(spec, proposal(2, BIG), lambda context, users: None if users == 8 else 100.0)
    assert len(quantity(Goal.TTFT)(with_ttft(unscored, 0.2))) == 2
    assert quantity(Goal.TTFT)(with_ttft(record(spec, proposal(2, BIG), failure=FailureClass.LOAD), 0.2)) == {}
    assert quantity(Goal.SPEEDUP)(mine) == {one.metrics.cell_id: one.metrics.output_tps for one in mine.cells}
