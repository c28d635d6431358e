"""Which untried point to measure next, from the few that were measured.

A Gaussian process over octaves: log scores of near settings are alike, most of a difference is the
sum of one effect per knob, and the rest is an effect of all knobs together. Its scale and
smoothness are not known beforehand, so the choice is averaged over a few of each by how well they
explain what was measured. Written for a dozen to a hundred measurements.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NOISE = 0.02
"""Deviation of one log score: two measurements of a setting differ by 2 to 3 % in public reports."""
_MEAN = 1.0
"""Deviation of the level of all log scores: next to nothing is assumed about it."""
_AMPLITUDES = (0.1, 0.2, 0.4)
"""Deviation of log scores over the space."""
_LENGTHS = (1.0, 2.0, 4.0)
"""Octaves over which settings are alike."""
_ADDITIVE = 0.8
"""Share of the variance that is one effect per knob."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of the points that were asked for."""

    measured: NDArray[np.float64]
    """(n, D): where a score was measured."""
    scores: NDArray[np.float64]
    """(n,): log scores."""
    infeasible: NDArray[np.float64]
    """(m, D): where the engine fails or a constraint is violated; may repeat measured points."""
    pending: NDArray[np.float64]
    """(p, D): being measured now."""


def promising(candidates: NDArray[np.float64], told: Told, columns: Sequence[slice]) -> int:
    """The candidate that promises the largest gain over the best point so far.

    Source: expected improvement over the best predicted mean (Jones, Schonlau and Welch 1998),
    averaged over kernel parameters by their evidence (Snoek, Larochelle and Adams 2012), times
    the chance that the point is feasible. Points being measured count with their predicted mean.

    Args:
        candidates: (c, D) float64, at least one.
        told: what is known.
        columns: the columns of each knob.

    Returns:
        A row of ``candidates``; the most central one where nothing is known or under way.
    """
    if not len(told.measured) and not len(told.pending):
        return int(((candidates - candidates.mean(axis=0)) ** 2).sum(axis=1).argmin())
    weights = []
    gains = []
    centre = float(told.scores.mean()) if len(told.scores) else 0.0
    for amplitude, length in itertools.product(_AMPLITUDES, _LENGTHS):
        model = _Model(told.measured, told.scores - centre, columns, amplitude, length)
        weights.append(model.evidence)
        if len(told.pending):
            believed, _ = model.predict(told.pending)
            x, y = np.vstack([told.measured, told.pending]), np.concatenate([model.scores, believed])
            model = _Model(x, y, columns, amplitude, length)
        mean, deviation = model.predict(candidates)
        best = model.predict(model.points)[0].max() if len(model.points) else 0.0
        gains.append(_expected_gain(mean - best, deviation))
    shares = np.exp(np.asarray(weights) - max(weights))
    gain = np.average(gains, axis=0, weights=shares)
    return int(np.argmax(gain * _chance(candidates, told, columns)))


class _Model:
    """A Gaussian process with fixed kernel parameters, given its points."""

    def __init__(
        self,
        points: NDArray[np.float64],
        scores: NDArray[np.float64],
        columns: Sequence[slice],
        amplitude: float,
        length: float,
    ) -> None:
        self.points, self.scores = points, scores
        self._columns, self._amplitude, self._length = columns, amplitude, length
        self._root = np.linalg.cholesky(self._kernel(points) + NOISE**2 * np.eye(len(points)))
        self._weights = np.linalg.solve(self._root.T, np.linalg.solve(self._root, scores))
        self.evidence = float(-0.5 * scores @ self._weights - np.log(np.diag(self._root)).sum())

    def predict(self, at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and deviation of the noise-free log score, (k,) each."""
        cross = self._kernel(at)
        explained = (np.linalg.solve(self._root, cross.T) ** 2).sum(axis=0)
        variance = self._amplitude**2 + _MEAN**2 - explained
        return cross @ self._weights, np.sqrt(np.maximum(variance, 1e-12))

    def _kernel(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Covariance with the model's points, (k, n)."""
        return self._amplitude**2 * _alike(at, self.points, self._columns, self._length) + _MEAN**2


def _alike(
    one: NDArray[np.float64], other: NDArray[np.float64], columns: Sequence[slice], length: float
) -> NDArray[np.float64]:
    """Correlation of the points' scores, (k, n) between 0 and 1."""
    squares = [((one[:, None, part] - other[None, :, part]) ** 2).sum(axis=-1) for part in columns]
    knobs: NDArray[np.float64] = np.exp(-np.asarray(squares, dtype=np.float64) / (2 * length**2))
    mixed: NDArray[np.float64] = _ADDITIVE * knobs.mean(axis=0) + (1 - _ADDITIVE) * knobs.prod(axis=0)
    return mixed


def _expected_gain(above: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Expectation of the part of a normal variable that lies above zero, (k,)."""
    z = above / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    share = np.asarray([0.5 * math.erfc(-value / math.sqrt(2)) for value in z.tolist()])
    return np.asarray(above * share + deviation * density, dtype=np.float64)


def _chance(candidates: NDArray[np.float64], told: Told, columns: Sequence[slice]) -> NDArray[np.float64]:
    """How likely each candidate is feasible, (c,): towards 1 far from all that failed.

    A regression on failed or not with the kernel of the scores, for what an engine cannot do is
    mostly a matter of one knob. Less than even chances count as none while there are better ones.
    """
    if not len(told.infeasible):
        return np.ones(len(candidates))
    good = told.measured[[not (told.infeasible == row).all(axis=1).any() for row in told.measured]]
    points = np.vstack([told.infeasible, good])
    failed = np.concatenate([np.ones(len(told.infeasible)), np.zeros(len(good))])
    near = _alike(points, points, columns, _LENGTHS[0]) + 0.01 * np.eye(len(points))
    risk = _alike(candidates, points, columns, _LENGTHS[0]) @ np.linalg.solve(near, failed)
    chance = np.asarray(np.clip(1 - risk, 0.0, 1.0), dtype=np.float64)
    return np.where(chance < 0.5, 0.0, chance) if chance.max() >= 0.5 else chance
