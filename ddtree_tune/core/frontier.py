"""What each setting gives one user and all of them, and which settings nothing else beats at both.

More users share a server for more tokens a second in all and fewer for each; a setting is on the
frontier where no other point of the same context has more of both.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.coherence import judged
from ddtree_tune.core.record import TrialStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.record import TrialRecord


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One setting in one cell, over all trials that scored it."""

    config: EngineConfig
    context: int
    concurrency: int | None
    user_tps: float
    """Median of the trials."""
    output_tps: float
    """Median of the trials."""
    low_tps: float | None
    """Lowest end of the trials' own 95 % intervals; None if none has one."""
    high_tps: float | None
    trials: int
    on_frontier: bool


def frontier(records: Iterable[TrialRecord]) -> tuple[FrontierPoint, ...]:
    """Every setting in every cell that a complete trial scored, ordered by context, users and speed."""
    cells: dict[tuple[EngineConfig, str], list[CellMetrics]] = {}
    for record in judged(records):
        if record.status is TrialStatus.COMPLETE:
            for cell in record.cells:
                if cell.metrics.scored and cell.metrics.user_tps is not None:
                    cells.setdefault((record.config, cell.metrics.cell_id), []).append(cell.metrics)
    points = [_point(config, found) for (config, _), found in cells.items()]
    best: list[FrontierPoint] = []
    for context in sorted({point.context for point in points}):
        here = [point for point in points if point.context == context]
        kept = undominated(np.asarray([(point.user_tps, point.output_tps) for point in here]))
        best += [replace(point, on_frontier=on) for point, on in zip(here, kept.tolist(), strict=True)]
    return tuple(sorted(best, key=lambda one: (one.context, one.concurrency or 0, -one.output_tps)))


def undominated(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows no other row matches or exceeds in every column and exceeds in one.

    Args:
        values: (n, d) float64, more is better.

    Returns:
        (n,) bool.
    """
    at_least = (values[:, None, :] >= values[None, :, :]).all(axis=2)
    above = (values[:, None, :] > values[None, :, :]).any(axis=2)
    return np.asarray(~(at_least & above).any(axis=0), dtype=np.bool_)


def _point(config: EngineConfig, found: list[CellMetrics]) -> FrontierPoint:
    intervals = [one.output_tps_ci95 for one in found if one.output_tps_ci95 is not None]
    return FrontierPoint(
        config=config,
        context=found[0].context,
        concurrency=found[0].concurrency,
        user_tps=statistics.median(one.user_tps for one in found if one.user_tps is not None),
        output_tps=statistics.median(one.output_tps for one in found if one.output_tps is not None),
        low_tps=min((one.low for one in intervals), default=None),
        high_tps=max((one.high for one in intervals), default=None),
        trials=len(found),
        on_frontier=False,
    )
