"""Small statistics with one definition each: percentiles, intervals, means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


class Interval(NamedTuple):
    """A closed interval."""

    low: float
    high: float


def wilson(successes: int, trials: int, z: float = Z95) -> Interval:
    """Score interval of a proportion.

    Source: Wilson, JASA 22 (1927) 209-212.

    Args:
        successes: how many succeeded.
        trials: out of how many, at least 1.
        z: normal quantile of the wanted confidence.
    """
    p = successes / trials
    denominator = 1 + z * z / trials
    centre = (p + z * z / (2 * trials)) / denominator
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials)) / denominator
    # Rounding must not push an end past the estimate itself, as it would at 0 of n and n of n.
    return Interval(max(0.0, min(centre - half, p)), min(1.0, max(centre + half, p)))


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile, or None where the sample is too small to show it.

    A percentile needs at least one value beyond it on the shorter side: p50 needs 2 values, p95
    needs 20, p99 needs 100.

    Args:
        values: the sample, in any order.
        q: percent, above 0 and below 100.
    """
    needed = math.ceil(100 / min(q, 100 - q) - 1e-9)
    if len(values) < needed:
        return None
    return float(np.percentile(np.asarray(values, dtype=np.float64), q))


def geometric_mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Weighted geometric mean of positive values.

    Args:
        values: at least one positive number.
        weights: one positive weight per value; equal when None.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    return float(np.exp(np.average(logs, weights=weights)))


def bootstrap_median(values: Sequence[float], *, seed: int = 0, draws: int = 2000) -> Interval | None:
    """95 % percentile-bootstrap interval of the median; None below 3 values."""
    if len(values) < 3:
        return None
    sample = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(sample, size=(draws, len(sample))), axis=1)
    return Interval(float(np.percentile(medians, 2.5)), float(np.percentile(medians, 97.5)))
