"""What many trials measured side by side: settings by rounds by cells.

The search is one round, each setting once and at its own time; the finals are several, in which
every finalist and every baseline is measured side by side. Comparisons are made inside a round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.inference import contrast
from ddtree_tune.core.record import Origin
from ddtree_tune.core.speedup import NO_SPECULATION, pooled_rates, rates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.goals import Quantity
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.stats import Interval


class Basis(StrEnum):
    """Which measurements a comparison rests on."""

    FINALS = "finals"
    """Measured again after the search, side by side with the baselines."""
    SEARCH = "search"
    """The search's own measurement, once: the best of many is flattered by its luck."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster one configuration is than another."""

    ratio: float
    interval: Interval | None
    """95 %; None where nothing was measured twice."""
    basis: Basis
    rounds: int
    """Measurements of each of the two."""

    @property
    def sure(self) -> bool | None:
        """Whether the interval excludes 1; None without an interval."""
        return None if self.interval is None else not self.interval.low <= 1 <= self.interval.high


@dataclass(frozen=True, slots=True)
class Measurements:
    """A table of one quantity of which more is better: throughputs, if nothing else is said."""

    basis: Basis
    arms: tuple[EngineConfig, ...]
    cells: tuple[str, ...]
    """In the order of the matrix."""
    logs: NDArray[np.float64]
    """(arms, rounds, cells) float64: log of the quantity; NaN where there is no scored one."""
    weights: Mapping[str, float]
    """How much each cell counts."""

    @classmethod
    def of_search(
        cls, records: Sequence[TrialRecord], weights: Mapping[str, float], of: Quantity = rates
    ) -> Measurements:
        """Everything but the finals, as one round; the median where one was measured twice.

        Args:
            records: of the sweep.
            weights: how much each cell counts, in the order of the matrix.
            of: the quantity.
        """
        cells = tuple(weights)
        searched = [record for record in records if record.proposal.origin is not Origin.FINAL]
        arms = tuple(dict.fromkeys(record.config for record in searched))
        logs = [[_logs(pooled_rates(searched, arm, of), cells)] for arm in arms]
        return cls(Basis.SEARCH, arms, cells, _array(logs, len(arms), 1, len(cells)), weights)

    @classmethod
    def of_finals(
        cls, records: Sequence[TrialRecord], weights: Mapping[str, float], of: Quantity = rates
    ) -> Measurements:
        """The finals; the median where a round measured something twice.

        Args:
            records: of the sweep.
            weights: how much each cell counts, in the order of the matrix.
            of: the quantity.
        """
        cells = tuple(weights)
        finals = [record for record in records if record.proposal.origin is Origin.FINAL]
        arms = tuple(dict.fromkeys(record.config for record in finals))
        turns = range(1 + max((record.proposal.round for record in finals), default=-1))
        rounds = [[record for record in finals if record.proposal.round == turn] for turn in turns]
        logs = [[_logs(pooled_rates(measured, arm, of), cells) for measured in rounds] for arm in arms]
        return cls(Basis.FINALS, arms, cells, _array(logs, len(arms), len(rounds), len(cells)), weights)

    @property
    def compared(self) -> tuple[str, ...]:
        """The cells that scores are taken over: those that no speculation has and that count."""
        if NO_SPECULATION not in self.arms:
            return ()
        scored = np.isfinite(self.logs[self.arms.index(NO_SPECULATION)]).any(axis=0)
        known = zip(self.cells, scored.tolist(), strict=True)
        return tuple(cell for cell, there in known if there and self.weights[cell] > 0)

    def gain(self, arm: EngineConfig, base: EngineConfig, cells: Sequence[str] | None = None) -> Gain | None:
        """Compare two arms.

        Args:
            arm: the numerator.
            base: the denominator.
            cells: over these alone, equally where none of them counts; over all that are compared when
                None. A round in which an arm lacks one of them does not count for that arm.

        Returns:
            None if no round measured both, or there is no cell.
        """
        names = self.compared if cells is None else cells
        if arm not in self.arms or base not in self.arms or not names:
            return None
        shares = [self.weights[one] for one in names]
        shares = shares if any(shares) else [1.0] * len(names)
        picked = [self.cells.index(one) for one in names]
        logs = np.average(self.logs[:, :, picked], axis=2, weights=shares)
        found = contrast(logs, self.arms.index(arm), self.arms.index(base))
        return Gain(found.ratio, found.interval, self.basis, found.rounds) if found else None

    def mixed(self, choice: Mapping[str, EngineConfig], base: EngineConfig) -> Gain | None:
        """Compare a mixture of arms, one for each cell, with one arm.

        The noise is that of the mixture, of the base and of the arms that the mixture does not use.

        Args:
            choice: arm by cell.
            base: the denominator.

        Returns:
            None where a cell that is compared has no choice, or no round measured all of it.
        """
        names = self.compared
        if base not in self.arms or not names or any(choice.get(cell) not in self.arms for cell in names):
            return None
        picked = [self.cells.index(cell) for cell in names]
        used = [self.arms.index(choice[cell]) for cell in names]
        others = [row for row, arm in enumerate(self.arms) if arm != base and row not in used]
        mixture = self.logs[used, :, picked].T[None]
        logs = np.concatenate([mixture, self.logs[[self.arms.index(base), *others]][:, :, picked]])
        found = contrast(np.average(logs, axis=2, weights=[self.weights[cell] for cell in names]), 0, 1)
        return Gain(found.ratio, found.interval, self.basis, found.rounds) if found else None

    def output_tps(self, arm: EngineConfig, cell: str) -> float | None:
        """Median throughput of one arm in one cell; None if it was not measured there."""
        if arm not in self.arms:
            return None
        logs = self.logs[self.arms.index(arm), :, self.cells.index(cell)]
        known = logs[np.isfinite(logs)]
        return float(np.exp(np.median(known))) if len(known) else None


def _logs(values: dict[str, float], cells: Sequence[str]) -> list[float]:
    return [math.log(values[cell]) if cell in values else math.nan for cell in cells]


def _array(logs: list[list[list[float]]], *shape: int) -> NDArray[np.float64]:
    return np.asarray(logs, dtype=np.float64).reshape(shape)
