"""The prior of a search: replayed traces, with step times as trials measured them so far.

A trace tells of its own window and of as many candidates as it keeps. Beyond that a setting is
foretold as its nearest traced neighbour: what the difference makes is left to the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddtree_tune.core.prior import Acceptances, Prior, base_cells
from ddtree_tune.core.step_time import Estimate, StepTimeModel
from ddtree_tune.core.steps import step_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddtree_tune.core.draft_trace import DraftTrace
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord


@dataclass(frozen=True, slots=True)
class Replayed:
    """Traces that were replayed over the settings that a search may ask about."""

    acceptances: Acceptances
    topks: Mapping[int | None, int]
    """Candidates that the trace of each window keeps."""

    @classmethod
    def of(cls, traces: Sequence[DraftTrace], configs: Iterable[EngineConfig]) -> Replayed:
        """Replay.

        Args:
            traces: at least one, one per window.
            configs: of the search.
        """
        topks = {trace.header.window: trace.header.topk for trace in traces}
        return cls(Acceptances(traces, [nearest(config, topks) for config in configs]), topks)

    def foresight(self, records: Sequence[TrialRecord], weights: Mapping[str, float]) -> Foretelling:
        """What can be foretold once some trials ended.

        Args:
            records: of the sweep.
            weights: how much each cell counts.
        """
        counted = tuple(cell for cell in base_cells(records) if weights.get(cell.cell_id, 0.0) > 0)
        prior = Prior(counted, StepTimeModel.fit(step_points(records)), self.acceptances)
        return Foretelling(prior, self.topks, weights)


@dataclass(frozen=True, slots=True)
class Foretelling:
    """Foretells the log score of any setting."""

    prior: Prior
    topks: Mapping[int | None, int]
    weights: Mapping[str, float]

    def __call__(self, config: EngineConfig) -> Estimate | None:
        """The weighted mean of the cells' log speed-ups; None where a cell that counts cannot be foretold.

        The cells' errors are taken to be one error: they share the trace and the width.
        """
        cells = self.prior.cells(nearest(config, self.topks))
        if not cells or len(cells) < len(self.prior.base):
            return None
        whole = sum(self.weights[cell] for cell in cells)
        log = sum(self.weights[cell] * one.log for cell, one in cells.items())
        deviation = sum(self.weights[cell] * one.deviation for cell, one in cells.items())
        return Estimate(log / whole, deviation / whole)


def nearest(config: EngineConfig, topks: Mapping[int | None, int]) -> EngineConfig:
    """The setting itself, or the one in the nearest traced window with at most the candidates that it keeps."""
    widest = 2 * max((window for window in (config.window, *topks) if window is not None), default=1)

    def away(window: int | None) -> float:
        return abs(math.log2((window or widest) / (config.window or widest)))

    window = min(topks, key=away)
    topk = None if config.topk is None else min(config.topk, topks[window])
    return replace(config, window=window, topk=topk)
