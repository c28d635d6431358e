"""When a trial need not be measured to its end: too far behind in the cells that come first.

What is compared are scores over the first cells, and what is wanted is the score over the matrix.
So the allowance holds, beside the noise of both measurements, how differently complete trials did
in the two: a setting that may win it back in the other cells goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.speedup import log_score
from ddtree_tune.core.stats import Z95

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.step_time import Estimate

SPREAD = 0.04
"""Deviation of log(matrix score) - log(first cells' score) over settings, before trials tell."""
_BELIEF = 3.0
"""Trials that this is worth."""


@dataclass(frozen=True, slots=True)
class PaceCell:
    """A first cell without speculation."""

    cell_id: str
    base_tps: float
    """Output tokens per second of no speculation."""
    weight: float
    """How much the cell counts."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What the first cells of a trial are held against; everything the decision needs beside them."""

    cells: tuple[PaceCell, ...]
    score: float
    """Speed-up of the best setting over these cells."""
    deviation: float
    """Of the logarithm of two settings' ratio over the matrix, where that over these cells is known
    but for the trial's own intervals."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What complete trials say of the cells beyond the first: log(matrix score) - log(first cells')."""

    mean: float
    deviation: float
    """Of one setting."""

    @classmethod
    def of(cls, seen: Sequence[float]) -> Rest:
        """Estimate both, the deviation with SPREAD as some trials of its own.

        Source: the posterior mean of a variance under a scaled inverse chi-squared prior (Gelman et
        al., Bayesian Data Analysis, section 2.6), with its degrees of freedom for the sample size.

        Args:
            seen: one number per complete trial; none is an even start.
        """
        values = np.asarray(seen, dtype=np.float64)
        mean = float(values.mean()) if len(values) else 0.0
        freedom = _BELIEF + max(0, len(values) - 1)
        return cls(mean, math.sqrt((_BELIEF * SPREAD**2 + float(((values - mean) ** 2).sum())) / freedom))


def set_pace(
    best: Estimate, base: Mapping[str, float], weights: Mapping[str, float], rest: Rest, drift: float
) -> Pace | None:
    """What a trial that starts now has to keep up with.

    Args:
        best: log score of the best setting over the first cells, with its own deviation.
        base: output tokens per second without speculation, by first cell.
        weights: how much each cell counts.
        rest: what the other cells may change, for each of the two.
        drift: deviation of a whole trial's log scores.
    """
    cells = tuple(PaceCell(cell, tps, weights[cell]) for cell, tps in base.items() if weights[cell] > 0)
    spread = math.sqrt(best.deviation**2 + 2 * drift**2 + 2 * rest.deviation**2)
    return Pace(cells, math.exp(best.log), spread) if cells else None


def standing(cells: Iterable[CellMetrics], pace: Pace) -> Estimate | None:
    """Log score over the first cells; None while one of them has no scored measurement."""
    base = {one.cell_id: one.base_tps for one in pace.cells}
    return log_score(cells, base, {one.cell_id: one.weight for one in pace.cells})


def behind(cells: Iterable[CellMetrics], pace: Pace) -> bool:
    """Whether the setting cannot come within its 95 % interval of the best.

    log score + 1.96 * hypot(own deviation, pace.deviation) < log(pace.score): of settings as good
    as the best, one in forty is stopped. Where a first cell cannot be scored nobody knows, and the
    trial goes on.

    Args:
        cells: what was measured so far.
        pace: what to keep up with.
    """
    mine = standing(cells, pace)
    if mine is None:
        return False
    return mine.log + Z95 * math.hypot(mine.deviation, pace.deviation) < math.log(pace.score)
