"""How sure a difference between settings is that were measured in rounds.

Each round measures every setting once. What a round does to all of them alike (a warmer machine, a
busier neighbour) is taken out; what remains between rounds is the noise of one measurement, and it
is pooled over all settings, for two rounds say little about the noise of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.stats import Interval, t_quantile_95

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Contrast:
    """One setting over another."""

    ratio: float
    interval: Interval | None
    """95 %; None where nothing was measured twice."""
    rounds: int
    """Rounds that measured both."""

    @property
    def sure(self) -> bool | None:
        """Whether the interval excludes 1; None without an interval."""
        return None if self.interval is None else not self.interval.low <= 1 <= self.interval.high


def contrast(logs: NDArray[np.float64], arm: int, base: int) -> Contrast | None:
    """Ratio of two arms from all rounds, with a t interval.

    Least squares for ``log value = arm + round``; the residual variance has as many degrees of
    freedom as the table has values beyond its arms and rounds.
    Source: randomised complete blocks (Fisher 1925; Montgomery, Design and Analysis of
    Experiments, ch. 4), by least squares so that a missing value costs only itself.

    Args:
        logs: (arms, rounds) float64, logarithms; NaN where a value is missing.
        arm: row of the numerator.
        base: row of the denominator.

    Returns:
        None if no round measured both arms.
    """
    both = int((np.isfinite(logs[arm]) & np.isfinite(logs[base])).sum())
    if not both:
        return None
    telling = np.isfinite(logs).sum(axis=1) > 1  # a lone value is its arm's effect, and says nothing of anything else
    telling[[arm, base]] = True
    logs = logs[telling]
    arm, base = (int(telling[:row].sum()) for row in (arm, base))
    arms, rounds = np.nonzero(np.isfinite(logs))
    values = logs[arms, rounds]
    design = np.zeros((len(values), logs.shape[0] + logs.shape[1]))
    design[np.arange(len(values)), arms] = 1.0
    design[np.arange(len(values)), logs.shape[0] + rounds] = 1.0
    inverse = np.linalg.pinv(design.T @ design)
    effects = inverse @ design.T @ values
    pick = np.zeros(design.shape[1])
    pick[arm] += 1.0
    pick[base] -= 1.0
    mean = float(pick @ effects)
    freedom = len(values) - int(np.linalg.matrix_rank(design))
    interval = None
    if freedom > 0:
        variance = float(((values - design @ effects) ** 2).sum()) / freedom
        half = t_quantile_95(freedom) * math.sqrt(max(0.0, variance * float(pick @ inverse @ pick)))
        interval = Interval(math.exp(mean - half), math.exp(mean + half))
    return Contrast(math.exp(mean), interval, both)
