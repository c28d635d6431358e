"""The prior foretells what an engine of known truth does."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.prior import Acceptances, BaseCell, Prior, base_cells, cell_speedup
from ddtree_tune.core.prior_table import ForetoldReport
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.replay import replay
from ddtree_tune.core.speedup import NO_SPECULATION, PLAIN_CHAIN, rates, speedup
from ddtree_tune.core.step_time import Estimate, StepTimeModel
from ddtree_tune.core.steps import step_points
from tests.builders import tree
from tests.drafts import request_of, trace_of
from tests.engines import SHAPES, measured_cell, trial

BUDGETS, TOPKS = (2, 4, 7, 12, 24), (1, 2, 4)
CONFIGS = tuple(tree(budget, topk) for budget in BUDGETS for topk in TOPKS if topk > 1 or budget <= 5)


@pytest.fixture(scope="module")
def drafts():
    rng = np.random.default_rng(2)
    requests = [request_of(rng, reply=40, depth=15, topk=4, after=16, name=str(i)) for i in range(8)]
    parts = [replace(request, context=context) for request, context in zip(requests, (60, 512) * 4, strict=True)]
    return trace_of(parts)


def accepted(drafts, config):
    """What the drafts give the engine, by context."""
    planes = {context: replay(part, (config.budget,), (config.topk,)) for context, part in drafts.by_context().items()}
    return lambda context: float(planes[context].accept_len[0, 0])


def measured(drafts, config, number=1):
    return trial(number, config, config.budget + 1, accepted(drafts, config))


@pytest.fixture(scope="module")
def base():
    return trial(0, NO_SPECULATION, 1, lambda _: 1.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cell_gains_what_the_engine_gains(base, shape):
    name = measured_cell(*shape, 1, 1.0).cell_id
    cell = next(one for one in base_cells([base]) if one.cell_id == name)
    faster = measured_cell(*shape, 9, 4.2, step_s=0.02)
    found = cell_speedup(cell, Estimate(math.log(0.02), 0.1), Estimate(math.log(4.2), 0.0))
    assert found.log == pytest.approx(math.log(faster.output_tps / cell.output_tps))
    assert 0 < found.deviation < 0.1  # the prompts' share is sure


def test_what_takes_no_time_gains_as_much_as_the_prompts_allow():
    base = BaseCell("c", 60, 100.0, 0.01, 0.25)
    assert cell_speedup(base, Estimate(-30.0, 0.5), Estimate(1.0, 0.5)).log == pytest.approx(math.log(4))


def test_baselines_are_pooled_and_incomplete_ones_left_out(base):
    slower = trial(3, NO_SPECULATION, 1, lambda _: 1.0, factor=1.2)
    broken = trial(4, NO_SPECULATION, 1, lambda _: 1.0, factor=9.0, status=TrialStatus.FAILED)
    pooled, alone = base_cells([base, slower, broken]), base_cells([base])
    assert [one.cell_id for one in pooled] == [one.cell_id for one in alone]
    for one, other in zip(pooled, alone, strict=True):
        assert other.output_tps / 1.2 < one.output_tps < other.output_tps
        assert one.prefill_share < other.prefill_share


def test_settings_that_nobody_measured_are_foretold_from_others_of_their_width(drafts, base):
    known = [measured(drafts, tree(budget, 2), number) for number, budget in enumerate(BUDGETS, 1)]
    prior = Prior(base_cells([base]), StepTimeModel.fit(step_points(known)), Acceptances([drafts], CONFIGS))
    gains = rates(base)
    for config in CONFIGS:
        truth = speedup(measured(drafts, config), gains).score
        assert prior(config).log == pytest.approx(math.log(truth), abs=0.01)
        assert 0 < prior(config).deviation < 0.3


def test_the_ranking_holds_where_widths_lie_between_the_measured_ones(drafts, base):
    known = [measured(drafts, tree(budget, 2), number) for number, budget in enumerate((2, 24), 1)]
    prior = Prior(base_cells([base]), StepTimeModel.fit(step_points(known)), Acceptances([drafts], CONFIGS))
    between = prior(tree(7, 4))
    truth = speedup(measured(drafts, tree(7, 4)), rates(base)).score
    assert abs(between.log - math.log(truth)) < 2 * between.deviation
    assert between.deviation > prior(tree(24, 4)).deviation


def test_the_chain_is_foretold_like_a_tree_of_one_candidate(drafts, base):
    steps = StepTimeModel.fit(step_points([trial(1, PLAIN_CHAIN, 16, lambda _: 3.0)]))
    prior = Prior(base_cells([base]), steps, Acceptances([drafts], (PLAIN_CHAIN, tree(40, 1))))
    assert prior(PLAIN_CHAIN) == prior(tree(40, 1)) is not None


def test_what_is_not_known_is_not_foretold(drafts, base):
    cells = base_cells([base])
    steps = StepTimeModel.fit(step_points([measured(drafts, tree(7, 2))]))
    beyond = (tree(7, 4), tree(7, 8), tree(7, 4, window=64))
    prior = Prior(cells, steps, Acceptances([drafts], beyond))
    assert [prior(config) is None for config in beyond] == [False, True, True]
    assert Prior(cells, StepTimeModel.fit([]), Acceptances([drafts], beyond))(beyond[0]) is None
    assert Prior(cells, steps, Acceptances([drafts], beyond))(NO_SPECULATION) is None
    assert Prior((), steps, Acceptances([drafts], beyond))(beyond[0]) is None
    only_60 = drafts.by_context()[60]
    assert Prior(cells, steps, Acceptances([only_60], beyond))(beyond[0]) is None
    assert set(Prior(cells, steps, Acceptances([only_60], beyond)).cells(beyond[0])) == {
        c.cell_id for c in cells if c.context == 60
    }


def test_a_trace_without_contexts_speaks_for_all(drafts, base):
    anywhere = trace_of([replace(request, context=None) for request in drafts.requests])
    steps = StepTimeModel.fit(step_points([measured(drafts, tree(7, 2))]))
    assert Prior(base_cells([base]), steps, Acceptances([anywhere], (tree(7, 2),)))(tree(7, 2)) is not None


def scores(n, seed=0):
    return np.random.default_rng(seed).normal(0, 0.15, n)


def test_the_table_shows_what_was_foretold_beside_what_was_measured(drafts, base):
    known = measured(drafts, tree(7, 2))
    report = ForetoldReport([base, known], drafts, (7, 12), (2, 4))
    rows = {(row["cell_id"], row["budget"], row["topk"]): row for row in report.fields()}
    assert len(rows) == len(SHAPES) * 4
    for cell_id, tps in rates(known).items():
        row = rows[cell_id, 7, 2]
        assert row["measured_tps"] == pytest.approx(tps)
        assert row["output_tps"] == pytest.approx(tps, rel=0.01)
        assert rows[cell_id, 12, 4]["measured_tps"] is None
        assert f"%: {tps:.0f}" in "\n".join(report.lines())
    assert list(ForetoldReport([known], drafts, (7,), (2,)).lines()) == [
        "No trial without speculation has a cell that can be used: nothing is foretold."
    ]


def test_a_window_is_foretold_from_its_own_trace(drafts, base):
    windowed = replace(drafts, header=drafts.header.model_copy(update={"window": 64}))
    steps = StepTimeModel.fit(step_points([measured(drafts, tree(7, 2))]))
    config = EngineConfig(Algorithm.TREE, 7, 2, 64)
    assert Prior(base_cells([base]), steps, Acceptances([windowed], (config,)))(config) is not None
    assert Prior(base_cells([base]), steps, Acceptances([drafts], (config,)))(config) is None
