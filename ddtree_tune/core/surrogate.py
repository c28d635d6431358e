"""Which untried point to measure next, from the few that were measured.

A Gaussian process over octaves: log scores of near settings are alike, most of a difference is the
sum of one effect per knob, and the rest is an effect of all knobs together. Its scale and
smoothness are not known beforehand, nor how far intervals exaggerate, so the choice is averaged over
a few of each by how well they explain what was measured. Written for a dozen to a hundred measurements.

What was foretold of the settings, if anything was, is the mean that a process departs from. There
may be several such accounts of the engine. How far to go by which is asked of the measurements:
processes around each account stand beside those around nothing, and all are weighed by their evidence.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_BELIEF = 0.9
"""Share of the accounts of the engine, before anything was measured; the rest is that of one that says nothing."""
_NEGLIGIBLE = 1e-3
"""Weight, beside that of the likeliest process, below which one is left out."""
UNMEASURED = 0.02
"""Deviation of a log score before anything was measured."""
_MEAN = 1.0
"""Deviation of the level of all log scores: next to nothing is assumed about it."""
_AMPLITUDES = (0.1, 0.2, 0.4)
"""Deviation of log scores over the space."""
_LEFT = (0.02, 0.05, 0.1, 0.2)
"""The same of what an account leaves of them; also of the account that says nothing, for beside others it
must not promise more than they do only because it knows less."""
_LENGTHS = (1.0, 2.0, 4.0)
"""Octaves over which settings are alike."""
_NOISES = (0.4, 0.65, 1.0)
"""What the deviations of measurements are multiplied by: the sub-windows that intervals are drawn from
take turns, as the waves of a closed loop do, and then say too much."""
_ADDITIVE = 0.8
"""Share of the variance that is one effect per knob."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of the points that were asked for."""

    measured: NDArray[np.float64]
    """(n, D): where a score was measured."""
    scores: NDArray[np.float64]
    """(n,): log scores."""
    noises: NDArray[np.float64]
    """(n,): their deviations."""
    infeasible: NDArray[np.float64]
    """(m, D): where the engine fails or a constraint is violated; may repeat measured points."""
    pending: NDArray[np.float64]
    """(p, D): being measured now."""


@dataclass(frozen=True, slots=True)
class Foretold:
    """What v accounts of the engine say of the log scores of the same points; their levels do not matter."""

    measured: NDArray[np.float64]
    """(v, n)"""
    pending: NDArray[np.float64]
    """(v, p)"""
    at: NDArray[np.float64]
    """(v, c): of the points that are asked about."""

    def beside(self, other: Foretold) -> Foretold:
        """These accounts and those of another one."""
        return Foretold(
            np.vstack([self.measured, other.measured]),
            np.vstack([self.pending, other.pending]),
            np.vstack([self.at, other.at]),
        )


def promising(
    candidates: NDArray[np.float64], told: Told, columns: Sequence[slice], foretold: Foretold | None = None
) -> int:
    """The candidate that promises the largest gain over the best point so far.

    Source: expected improvement over the best predicted mean (Jones, Schonlau and Welch 1998),
    averaged over kernel parameters by their evidence (Snoek, Larochelle and Adams 2012), times
    the chance that the point is feasible. Points being measured count with their predicted mean.

    Args:
        candidates: (c, D) float64, at least one.
        told: what is known.
        columns: the columns of each knob.
        foretold: of the candidates and the told points, where there is a prior.

    Returns:
        A row of ``candidates``; where nothing is known or under way the most central one, or of those
        of which most is foretold.
    """
    if not len(told.measured) and not len(told.pending):
        away = ((candidates - candidates.mean(axis=0)) ** 2).sum(axis=1)
        if foretold is not None:
            most = foretold.at.mean(axis=0)
            away = np.where(np.isclose(most, most.max()), away, np.inf)
        return int(away.argmin())
    good = np.concatenate([feasible(told), np.ones(len(told.pending), dtype=np.bool_)])
    gains, weights = [], []
    for view in _views(candidates, told, columns, foretold):
        best = view.known[good].max() if good.any() else view.known.max()
        gains.append(_expected_gain(view.mean - best, view.deviation))
        weights.append(view.weight)
    gain = np.average(gains, axis=0, weights=weights)
    return int(np.argmax(gain * chance(candidates, told, columns)))


def predicted(
    candidates: NDArray[np.float64], told: Told, columns: Sequence[slice], foretold: Foretold | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What candidates' log scores are without noise: mean and deviation over all processes, (c,) float64 each.

    Args:
        candidates: (c, D) float64.
        told: what is known; points under way count with their predicted mean.
        columns: the columns of each knob.
        foretold: of the candidates and the told points, where there is a prior.
    """
    views = _views(candidates, told, columns, foretold)
    weights = [view.weight for view in views]
    mean = np.average([view.mean for view in views], axis=0, weights=weights)
    spread = np.average([view.deviation**2 + (view.mean - mean) ** 2 for view in views], axis=0, weights=weights)
    return np.asarray(mean), np.sqrt(spread)


def believed(told: Told, columns: Sequence[slice], foretold: Foretold | None = None) -> NDArray[np.float64]:
    """What the log scores of the measured points are without their noise, (n,) float64.

    The posterior mean, averaged over kernel parameters by their evidence: one lucky measurement is
    drawn towards what its neighbours say.
    """
    nowhere = told.measured[:0]
    if foretold is not None:
        foretold = replace(foretold, at=foretold.at[:, :0])
    views = _views(nowhere, told, columns, foretold)
    means = [view.known[: len(told.measured)] for view in views]
    return np.asarray(np.average(means, axis=0, weights=[view.weight for view in views]))


@dataclass(frozen=True, slots=True)
class _Kernel:
    """How log scores of two points go together."""

    columns: Sequence[slice]
    amplitude: float
    length: float

    def __call__(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        """Covariance of the points' scores, (k, n)."""
        return self.amplitude**2 * _alike(one, other, self.columns, self.length) + _MEAN**2


class _Model:
    """Gaussian processes with one kernel around several accounts, given their points."""

    def __init__(
        self,
        points: NDArray[np.float64],
        left: NDArray[np.float64],
        noises: NDArray[np.float64],
        kernel: _Kernel,
    ) -> None:
        self.points, self.left, self.noises = points, left, noises
        self._kernel = kernel
        self._root = np.linalg.cholesky(kernel(points, points) + np.diag(noises**2))
        scaled = np.linalg.solve(self._root, left.T)
        self._weights = np.linalg.solve(self._root.T, scaled).T
        self.evidence = -0.5 * (scaled**2).sum(axis=0) - np.log(np.diag(self._root)).sum()

    def predict(self, at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean of what is left without noise, (v, k), and its deviation, (k,)."""
        cross = self._kernel(at, self.points)
        explained = (np.linalg.solve(self._root, cross.T) ** 2).sum(axis=0)
        variance = self._kernel.amplitude**2 + _MEAN**2 - explained
        return self._weights @ cross.T, np.sqrt(np.maximum(variance, 1e-12))

    def beside(self, pending: NDArray[np.float64]) -> _Model:
        """The processes with points under way as if they had been measured at their predicted mean."""
        if not len(pending):
            return self
        usual = float(self.noises.mean()) if len(self.noises) else UNMEASURED
        return _Model(
            np.vstack([self.points, pending]),
            np.hstack([self.left, self.predict(pending)[0]]),
            np.concatenate([self.noises, np.full(len(pending), usual)]),
            self._kernel,
        )


@dataclass(frozen=True, slots=True)
class _View:
    """What one process makes of log scores without their noise."""

    known: NDArray[np.float64]
    """(n + p,): of the measured points, then of those under way."""
    mean: NDArray[np.float64]
    """(c,): of the candidates."""
    deviation: NDArray[np.float64]
    """(c,)"""
    weight: float
    """Its share of the average."""


def _views(
    candidates: NDArray[np.float64], told: Told, columns: Sequence[slice], foretold: Foretold | None
) -> list[_View]:
    """The views of every process that counts; their weights follow what was believed and the evidence."""
    level = float(told.scores.mean()) if len(told.scores) else 0.0
    around = Foretold(*(np.full((1, len(of)), level) for of in (told.measured, told.pending, candidates)))
    shares = np.ones(1)
    amplitudes: tuple[float, ...] = _AMPLITUDES
    if foretold is not None:
        around = around.beside(foretold)
        shares = np.append(1 - _BELIEF, np.full(len(foretold.at), _BELIEF / len(foretold.at)))
        amplitudes = _LEFT
    left = told.scores - around.measured
    models: list[tuple[_Model, NDArray[np.float64]]] = []
    for factor, amplitude, length in itertools.product(_NOISES, amplitudes, _LENGTHS):
        model = _Model(told.measured, left, factor * told.noises, _Kernel(columns, amplitude, length))
        models.append((model, model.evidence + np.log(shares)))
    most = max(float(logs.max()) for _, logs in models)
    views = []
    for model, logs in models:
        weights = np.exp(logs - most)
        if weights.max() < _NEGLIGIBLE:
            continue
        whole = model.beside(told.pending)
        mean, deviation = whole.predict(candidates)
        known = whole.predict(whole.points)[0] + np.hstack([around.measured, around.pending])
        views += [
            _View(known[at], mean[at] + around.at[at], deviation, float(weights[at]))
            for at in np.flatnonzero(weights >= _NEGLIGIBLE)
        ]
    return views


def feasible(told: Told) -> NDArray[np.bool_]:
    """Which measured points are not among the infeasible ones, (n,) bool."""
    return np.asarray([not (told.infeasible == row).all(axis=1).any() for row in told.measured], dtype=np.bool_)


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


def chance(candidates: NDArray[np.float64], told: Told, columns: Sequence[slice]) -> NDArray[np.float64]:
    """How likely each candidate is feasible, (c,): towards 1 far from all that failed.

    A regression on failed or not with the kernel of the scores, for what an engine cannot do is
    mostly a matter of one knob. Less than even chances count as none while there are better ones.
    """
    if not len(told.infeasible):
        return np.ones(len(candidates))
    good = told.measured[feasible(told)]
    points = np.vstack([told.infeasible, good])
    failed = np.concatenate([np.ones(len(told.infeasible)), np.zeros(len(good))])
    near = _alike(points, points, columns, _LENGTHS[0]) + 0.01 * np.eye(len(points))
    risk = _alike(candidates, points, columns, _LENGTHS[0]) @ np.linalg.solve(near, failed)
    likely = np.asarray(np.clip(1 - risk, 0.0, 1.0), dtype=np.float64)
    return np.where(likely < 0.5, 0.0, likely) if likely.max() >= 0.5 else likely
