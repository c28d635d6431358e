"""What the search is told: over equal cells, with the failure's own meaning."""

import math
from dataclasses import replace

import pytest

from ddtree_tune.core.coding import pass_rate
from ddtree_tune.core.errors import INFRASTRUCTURE, FailureClass
from ddtree_tune.core.objective import Verdict, Yardstick, failure_class, observe
from ddtree_tune.core.record import CellResult, Origin, TrialStatus
from ddtree_tune.core.speedup import merged, pooled_rates, rates, score_against, speedup
from tests.builders import CHAIN, NONE, attempts, cell, proposal, record, spec, tree

SWEEP = spec()
BASE = record(SWEEP, proposal(1, NONE, Origin.BASELINE), lambda c, u: 100.0 * u)


def trial(tps, **changes):
    return record(SWEEP, proposal(2, tree(8)), tps, **changes)


def flagged(one, index, *flags):
    """The same trial with flags on one of its cells."""
    cells = list(one.cells)
    cells[index] = CellResult(replace(cells[index].metrics, flags=flags), ())
    return replace(one, cells=tuple(cells))


def test_the_score_is_the_geometric_mean_of_the_cells_ratios():
    gains = {(60, 1): 2.0, (60, 8): 1.0, (512, 1): 1.5, (512, 8): 0.75}
    got = speedup(trial(lambda c, u: 100.0 * u * gains[c, u]), rates(BASE))
    assert dict(got.ratios) == pytest.approx(
        {f"chat_i{c}_o128_c{u}": gain for (c, u), gain in gains.items()}, rel=1e-12
    )
    assert got.score == pytest.approx((2.0 * 1.0 * 1.5 * 0.75) ** 0.25)
    assert got.reason is None


def test_a_trial_that_lost_a_slow_cell_does_not_look_faster():
    fast_but_capped = flagged(trial(lambda c, u: 300.0 if u == 1 else 400.0), 1, "capped")
    got = speedup(fast_but_capped, rates(BASE))
    assert got.score is None
    assert got.reason == "not scored: chat_i60_o128_c8 (capped)"
    missing = replace(trial(100.0), cells=trial(100.0).cells[:3])
    assert speedup(missing, rates(BASE)).reason == "not scored: chat_i512_o128_c8 (not measured)"


def test_a_cell_that_the_baseline_lacks_is_left_out_for_everybody():
    base = rates(flagged(BASE, 3, "client_limited"))
    got = speedup(trial(lambda c, u: 200.0 * u), base)
    assert len(got.ratios) == 3
    assert got.score == pytest.approx(2.0)


def test_a_flag_that_does_not_disqualify_keeps_the_cell():
    assert speedup(flagged(trial(lambda c, u: 200.0 * u), 0, "bimodal"), rates(BASE)).score == pytest.approx(2.0)


def test_without_a_scored_baseline_there_is_no_score():
    assert speedup(trial(100.0), {}).score is None
    assert score_against(trial(100.0), []) is None
    assert score_against(trial(lambda c, u: 150.0 * u), [BASE]) == pytest.approx(1.5)


def test_the_pooled_baseline_is_the_median_of_its_complete_measurements():
    others = [record(SWEEP, proposal(n, NONE, Origin.FINAL), 100.0 * n) for n in (2, 3, 9)]
    lost = record(SWEEP, proposal(10, NONE), failure=FailureClass.NODE_LOST)
    elsewhere = record(SWEEP, proposal(11, CHAIN), 1.0)
    assert set(pooled_rates([*others, lost, elsewhere], NONE).values()) == {300.0}


def told(one, **changes):
    yardstick = replace(Yardstick.of(SWEEP, [BASE]), base_pass_rate=pass_rate(attempts(18)), margin=0.05)
    return observe(one, replace(yardstick, **changes))


def test_the_value_is_the_log_of_the_score():
    got = told(trial(lambda c, u: 130.0 * u, attempts=attempts(18)))
    assert got.verdict is Verdict.MEASURED
    assert got.value == pytest.approx(math.log(1.3))
    assert got.constraints == (("pass_rate", pytest.approx(-0.05)),)
    assert got.feasible


@pytest.mark.parametrize("failure", sorted(FailureClass))
def test_only_failures_of_the_machinery_teach_nothing(failure):
    got = told(trial(1.0, failure=failure))
    assert got.value is None
    assert got.reason == failure.value
    if failure in INFRASTRUCTURE:
        assert got.verdict is Verdict.LOST
        assert got.constraints == ()
    else:
        assert got.verdict is Verdict.INFEASIBLE
        assert got.constraints == (("failed", 1.0),)
        assert not got.feasible


def test_a_record_cut_off_in_the_middle_was_interrupted():
    half = replace(trial(1.0), status=TrialStatus.FAILED)
    assert failure_class(half) is FailureClass.INTERRUPTED
    assert told(half).verdict is Verdict.LOST
    assert failure_class(trial(1.0)) is None


def test_a_complete_trial_without_a_score_says_why():
    got = told(flagged(trial(100.0), 0, "unsteady"))
    assert (got.verdict, got.value) == (Verdict.UNSCORED, None)
    assert "unsteady" in got.reason


@pytest.mark.parametrize(("passed", "feasible"), [(18, True), (17, True), (16, False), (0, False)])
def test_the_pass_rate_may_lie_below_the_baselines_by_the_margin(passed, feasible):
    got = told(trial(100.0, attempts=attempts(passed)), margin=0.0501)
    assert got.feasible is feasible
    assert got.verdict is Verdict.MEASURED


def test_no_constraint_where_nothing_was_completed():
    assert told(trial(100.0, attempts=())).constraints == ()
    assert told(trial(100.0), base_pass_rate=None).constraints == ()
    assert told(trial(100.0, attempts=attempts(0, 20, truncated=20))).constraints == ()


def test_a_cell_without_throughput_is_named():
    cells = (CellResult(cell(60, 1, None), ()), *trial(100.0).cells[1:])
    assert speedup(trial(100.0, cells=cells), rates(BASE)).reason == "not scored: chat_i60_o128_c1 (no throughput)"


def test_measured_twice_a_trial_takes_each_cell_from_where_it_can_be_used():
    first, second = flagged(trial(100.0), 0, "unsteady"), flagged(trial(110.0), 1, "client_limited")
    both = merged([first, second])
    assert list(rates(both).values()) == [110.0, 100.0, 110.0, 110.0]
    assert rates(merged([second, flagged(first, 1, "capped")]))["chat_i60_o128_c1"] == 110.0
    failed = trial(1.0, failure=FailureClass.STARTUP_OOM)
    assert merged([first, failed]) == failed
