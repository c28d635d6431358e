"""How much a whole trial's score moves between two measurements of one setting.

A trial's own intervals hold what changes from second to second; a warmer machine, another memory
layout or a busier neighbour move all of its cells alike, and only repeats show that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddtree_tune.core.step_time import Estimate

DRIFT = 0.015
"""Deviation of a trial's log score beyond its own intervals, before repeats tell: two measurements of a
setting differ by 2 to 3 % in public reports."""
LEAST = 0.005
"""No fewer: interleaved repeats on one undisturbed machine still differ by this much."""
_BELIEF = 4.0
"""Repeats that DRIFT is worth."""


def drift(repeats: Iterable[Sequence[Estimate]]) -> float:
    """Deviation that trials of one setting have beyond their own intervals.

    The excess of the repeats' sum of squares over what their own deviations explain, averaged with
    DRIFT: the variance of a one-way random effect by the method of moments, shrunk.

    Source: Searle, Casella and McCulloch, Variance Components (1992), section 3.5.

    Args:
        repeats: log scores over the same cells, one sequence per setting.
    """
    total, freedom = _BELIEF * DRIFT**2, _BELIEF
    for group in repeats:
        logs = np.asarray([one.log for one in group], dtype=np.float64)
        count = len(logs)
        if count < 2:
            continue
        own = sum(one.deviation**2 for one in group) * (count - 1) / count
        total += float(((logs - logs.mean()) ** 2).sum()) - own
        freedom += count - 1
    return math.sqrt(max(total / freedom, LEAST**2))
