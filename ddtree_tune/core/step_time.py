"""What a verify step costs at a width that nobody has measured, from the widths that were.

The time of a step grows with the tokens that it verifies, but not smoothly: a kernel's next tile is
a jump. So the model assumes nothing but growth. In each cell of the load matrix it holds a curve
through the measured widths, and between two of them it believes in one jump at an unknown place:
its mean is the straight line, and its deviation is nothing at the measured widths and half the
difference in the middle. A jump is smoothed only as far as the noise of the measurements, which is
estimated from them, could have made it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.steps import StepPoint

NOISE = 0.02
"""Least deviation of the logarithm of one measured step time."""


class Estimate(NamedTuple):
    """A positive quantity that is known up to a factor."""

    log: float
    """Mean of its logarithm."""
    deviation: float
    """Standard deviation of its logarithm."""


class _Line(NamedTuple):
    """Seconds by width."""

    intercept_s: float
    slope_s: float

    def __call__(self, width: float) -> float:
        """Seconds at a width."""
        return self.intercept_s + self.slope_s * width


@dataclass(frozen=True, slots=True)
class _Curve:
    """One cell: knots at the measured widths."""

    widths: NDArray[np.float64]
    """(n,) float64, ascending."""
    logs: NDArray[np.float64]
    """(n,) float64, log seconds, never descending."""
    counts: NDArray[np.float64]
    """(n,) float64, measurements of each."""
    means: NDArray[np.float64]
    """(n,) float64, log seconds as measured."""
    line: _Line | None = None
    """Where four widths or more tell of one."""
    elasticity: float = 0.5
    """Without a line: the share of a width's relative growth that is believed of the time."""

    def growth(self, known: float, width: float) -> float:
        """How the logarithm changes from the last known width on."""
        if self.line is None:
            return math.log(width / known) * self.elasticity
        return math.log(max(self.line(width), self.line(known) * min(1.0, width / known)) / self.line(known))


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Step time by cell and width."""

    noise: float
    """Deviation of the logarithm of one measurement."""
    _curves: dict[str, _Curve]

    @classmethod
    def fit(cls, points: Sequence[StepPoint]) -> StepTimeModel:
        """Take in what was measured; there may be nothing.

        Steps without speculation have no drafter, so they are no part of a curve; they only say how
        steeply time can grow while few widths do.
        """
        ordered = sorted((one for one in points if one.width > 1), key=lambda point: (point.cell_id, point.width))
        curves = {cell: _curve(list(of)) for cell, of in groupby(ordered, key=lambda point: point.cell_id)}
        # The spread of repeats at one width, and of widths that lie against the growth.
        squares = [
            (
                math.log(point.step_s)
                - float(np.interp(point.width, curves[point.cell_id].widths, curves[point.cell_id].logs))
            )
            ** 2
            for point in ordered
        ]
        levels = sum(len(np.unique(curve.logs)) for curve in curves.values())
        free = len(ordered) - levels
        noise = max(NOISE, math.sqrt(sum(squares) / free)) if free else NOISE
        plain: dict[str, list[float]] = {}
        for one in points:
            if one.width == 1:
                plain.setdefault(one.cell_id, []).append(math.log(one.step_s))
        return cls(noise, {cell: _shrunk(_rising(curve, plain.get(cell)), noise) for cell, curve in curves.items()})

    def __call__(self, cell_id: str, width: int) -> Estimate | None:
        """The step time at a width.

        Beyond the measured widths it lies anywhere between staying as it is and growing with the
        width. The deviation is of one measurement's mean at a measured width.

        Returns:
            None for a cell that was not measured at all.
        """
        curve = self._curves.get(cell_id)
        if curve is None:
            return None
        right = int(np.searchsorted(curve.widths, width))
        if right < len(curve.widths) and curve.widths[right] == width:
            return Estimate(float(curve.logs[right]), self.noise / math.sqrt(curve.counts[right]))
        if right in {0, len(curve.widths)}:
            end = 0 if right == 0 else -1
            most = math.log(width / curve.widths[end])
            growth = curve.growth(float(curve.widths[end]), width)
            spread = abs(most) / math.sqrt(12)  # of a uniform distribution between none and the most
            return Estimate(
                float(curve.logs[end]) + growth, math.hypot(spread, self.noise / math.sqrt(curve.counts[end]))
            )
        left = right - 1
        share = float((width - curve.widths[left]) / (curve.widths[right] - curve.widths[left]))
        jump = float(curve.logs[right] - curve.logs[left])
        few = min(curve.counts[left], curve.counts[right])
        spread = jump * math.sqrt(share * (1 - share))
        return Estimate(float(curve.logs[left]) + share * jump, math.hypot(spread, self.noise / math.sqrt(few)))


class LeftOut(NamedTuple):
    """One measured width of one cell, and what the other widths foretell of it."""

    cell_id: str
    width: int
    measured: float
    """Mean of the logarithm of the measured step times."""
    foretold: Estimate


def leave_one_out(points: Sequence[StepPoint]) -> tuple[LeftOut, ...]:
    """Foretell each measured width of each cell from the others; a cell of one width tells nothing."""
    found = []
    for width in sorted({point.width for point in points} - {1}):
        model = StepTimeModel.fit([point for point in points if point.width != width])
        for cell_id in sorted({point.cell_id for point in points if point.width == width}):
            foretold = model(cell_id, width)
            mine = [math.log(p.step_s) for p in points if p.cell_id == cell_id and p.width == width]
            if foretold is not None:
                found.append(LeftOut(cell_id, width, float(np.mean(mine)), foretold))
    return tuple(found)


def _curve(points: Sequence[StepPoint]) -> _Curve:
    """The measured widths of one cell, pooled where they lie against the growth."""
    widths = sorted({point.width for point in points})
    logs = [[math.log(point.step_s) for point in points if point.width == width] for width in widths]
    counts = np.asarray([len(values) for values in logs], dtype=np.float64)
    means = np.asarray([np.mean(values) for values in logs])
    return _Curve(np.asarray(widths, dtype=np.float64), _growing(means, counts), counts, means)


def _growing(means: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest values, (n,) float64, that never descend.

    Source: the pool-adjacent-violators algorithm, Barlow, Bartholomew, Bremner and Brunk (1972).
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for mean, weight in zip(means.tolist(), counts.tolist(), strict=True):
        pools.append((mean, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, some, first), (high, others, second) = pools[-2:]
            pools[-2:] = [((low * some + high * others) / (some + others), some + others, first + second)]
    return np.asarray([mean for mean, _, members in pools for _ in range(members)])


def _rising(curve: _Curve, plain: Sequence[float] | None) -> _Curve:
    """Take the elasticity from the step without speculation, if it is known, to the widest one."""
    if not plain:
        return curve
    elasticity = (curve.logs[-1] - np.mean(plain)) / math.log(curve.widths[-1])
    return replace(curve, elasticity=float(np.clip(elasticity, 0.0, 1.0)))


def _shrunk(curve: _Curve, noise: float) -> _Curve:
    """Draw noisy knots towards a straight line of seconds by width, as far as noise explains their distance.

    Each knot is a line's value, a departure of its own, and noise: the mean of a normal prior and
    one measurement. The departures' variance is what the distances have beyond noise, so that jumps
    which repeats confirm stay where they are.

    Source: James and Stein (1961) in the form of Efron and Morris, JASA 68 (1973).
    """
    if len(curve.widths) < 4:
        return curve
    # Least squares of relative distances: a line a + b w with both as large as the data say.
    weight = np.sqrt(curve.counts) / np.exp(curve.means)
    design = np.stack([np.ones_like(curve.widths), curve.widths], axis=1)
    line = _Line(*np.linalg.lstsq(design * weight[:, None], np.sqrt(curve.counts), rcond=None)[0].tolist())
    values = np.asarray([line(width) for width in curve.widths.tolist()])
    if line.slope_s < 0 or values[0] <= 0:
        return curve
    own = noise**2 / curve.counts
    distance = curve.means - np.log(values)
    beyond = max(0.0, float((distance**2).sum() / (len(distance) - 2) - own.mean()))
    kept = beyond / (beyond + own)
    return replace(curve, logs=_growing(np.log(values) + kept * distance, curve.counts), line=line)
