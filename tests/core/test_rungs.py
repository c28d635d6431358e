"""The first cells: what stops a trial there, and that the best setting is hardly ever stopped."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core.rungs import SPREAD, Pace, PaceCell, Rest, behind, set_pace, standing
from ddtree_tune.core.speedup import log_score
from ddtree_tune.core.stats import Interval
from ddtree_tune.core.step_time import Estimate
from tests.builders import cell

FIRST = (cell(60, 1, 100.0), cell(60, 8, 800.0))
PACE = Pace(tuple(PaceCell(one.cell_id, one.output_tps, 1.0) for one in FIRST), 1.5, 0.03)


def measured(factor, width=0.01):
    """The first cells of a setting; ``width`` is the deviation that each cell's interval gives."""
    found = []
    for one in FIRST:
        tps = one.output_tps * factor
        interval = Interval(tps * math.exp(-1.96 * width), tps * math.exp(1.96 * width))
        found.append(replace(one, output_tps=tps, output_tps_ci95=interval))
    return found


def test_the_edge_is_the_interval_of_the_best():
    allowed = 1.96 * math.hypot(0.03, 0.01 / math.sqrt(2))
    assert not behind(measured(1.5 * math.exp(-allowed + 1e-3)), PACE)
    assert behind(measured(1.5 * math.exp(-allowed - 1e-3)), PACE)
    assert not behind(measured(2.0), PACE)


def test_a_noisier_trial_is_given_more():
    assert behind(measured(1.38), PACE)
    assert not behind(measured(1.38, width=0.08), PACE)


@pytest.mark.parametrize("spoilt", ["unsteady", "missing"])
def test_where_a_first_cell_cannot_be_scored_the_trial_goes_on(spoilt):
    slow = measured(0.5)
    cells = slow[:1] if spoilt == "missing" else [slow[0], replace(slow[1], flags=("unsteady",))]
    assert standing(cells, PACE) is None
    assert not behind(cells, PACE)
    assert behind(slow, PACE)


def test_cells_count_by_their_weight():
    lopsided = replace(PACE, cells=(replace(PACE.cells[0], weight=3.0), PACE.cells[1]))
    cells = [measured(1.5)[0], measured(1.2)[1]]
    assert standing(cells, lopsided).log == pytest.approx((3 * math.log(1.5) + math.log(1.2)) / 4)
    assert behind(cells, PACE)
    assert not behind(cells, lopsided)


def test_how_settings_did_in_the_other_cells_widens_the_allowance():
    alike, unlike = Rest.of([0.1] * 12), Rest.of([0.1, -0.1] * 6)
    assert alike.deviation < SPREAD < unlike.deviation
    assert Rest.of([]) == Rest(0.0, SPREAD)
    best = Estimate(math.log(1.5), 0.01)
    base = {one.cell_id: one.output_tps for one in FIRST}
    weights = dict.fromkeys(base, 1.0)
    narrow, wide = (set_pace(best, base, weights, rest, 0.015) for rest in (alike, unlike))
    assert narrow.score == wide.score == pytest.approx(1.5)
    assert narrow.deviation < wide.deviation
    assert set_pace(best, base, dict.fromkeys(base, 0.0), alike, 0.015) is None


def test_a_score_has_the_deviation_of_its_cells_intervals():
    base = {one.cell_id: one.output_tps for one in FIRST}
    found = log_score(measured(1.3, width=0.04), base)
    assert found.log == pytest.approx(math.log(1.3))
    assert found.deviation == pytest.approx(0.04 / math.sqrt(2), rel=1e-4)
    assert log_score(measured(1.3), {}) is None


def test_a_setting_as_good_as_the_best_is_stopped_once_in_forty():
    """Both are measured with drift and cell noise, and the matrix differs from the first cells."""
    rng = np.random.default_rng(0)
    drift, noise, spread = 0.015, 0.02, 0.04
    weights = {one.cell_id: 1.0 for one in FIRST}
    base = {one.cell_id: one.output_tps for one in FIRST}
    rest = Rest(0.0, spread)

    def first_cells():
        """Of a setting whose score over the matrix is 1.5."""
        moved = 1.5 * math.exp(rng.normal(0, math.hypot(spread, drift)))
        cells = measured(moved, width=noise)
        return [replace(one, output_tps=one.output_tps * math.exp(rng.normal(0, noise))) for one in cells]

    stopped = 0
    for _ in range(2000):
        pace = set_pace(log_score(first_cells(), base), base, weights, rest, drift)
        stopped += behind(first_cells(), pace)
    assert 20 < stopped < 80  # 2.5 % of 2000
