"""How much faster one trial is than a baseline, cell by cell and over the whole matrix.

A score compares equal work: it is taken over exactly the cells that the baseline has, so that a
trial which lost a slow cell cannot look faster for it. A trial that lacks one of them has no score.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.stats import geometric_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddtree_tune.core.record import TrialRecord

NO_SPECULATION = EngineConfig(Algorithm.NONE)
PLAIN_CHAIN = EngineConfig(Algorithm.CHAIN)
UNRESTRICTED_CHAIN = EngineConfig(Algorithm.CHAIN_UNRESTRICTED)
BASELINES = (NO_SPECULATION, PLAIN_CHAIN, UNRESTRICTED_CHAIN)
"""What every setting is shown beside; everything else is searched."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """One trial against one baseline."""

    ratios: tuple[tuple[str, float], ...]
    """(cell, output_tps over the baseline's) of every cell that both have."""
    score: float | None
    """Geometric mean of the ratios; None where a cell of the baseline is missing."""
    reason: str | None = None
    """Why there is no score."""


def rates(record: TrialRecord) -> dict[str, float]:
    """Output tokens per second of each scored cell, by cell; empty unless the trial is complete."""
    if record.status is not TrialStatus.COMPLETE:
        return {}
    metrics = (cell.metrics for cell in record.cells)
    return {one.cell_id: one.output_tps for one in metrics if one.scored and one.output_tps is not None}


def pooled_rates(records: Iterable[TrialRecord], config: EngineConfig) -> dict[str, float]:
    """Median of each cell over the complete measurements of one configuration."""
    seen: dict[str, list[float]] = {}
    for record in records:
        if record.config == config:
            for cell, tps in rates(record).items():
                seen.setdefault(cell, []).append(tps)
    return {cell: statistics.median(values) for cell, values in seen.items()}


def merged(records: Sequence[TrialRecord]) -> TrialRecord:
    """Trials that measured the same thing as one: of each cell the last that can be used.

    Args:
        records: at least one, in the order of asking.
    """
    last = records[-1]
    complete = [record for record in records if record.status is TrialStatus.COMPLETE]
    if last not in complete:
        return last
    cells = {cell.metrics.cell_id: cell for record in complete for cell in record.cells}
    cells |= {cell.metrics.cell_id: cell for record in complete for cell in record.cells if cell.metrics.scored}
    return replace(last, cells=tuple(cells.values()))


def speedup(record: TrialRecord, base: Mapping[str, float]) -> Speedup:
    """Compare a trial with a baseline.

    Args:
        record: the trial.
        base: the baseline's output tokens per second, by cell.
    """
    mine = rates(record)
    ratios = tuple((cell, mine[cell] / tps) for cell, tps in base.items() if cell in mine)
    if record.status is not TrialStatus.COMPLETE:
        return Speedup(ratios, None, f"the trial is {record.status}")
    if not base:
        return Speedup(ratios, None, "the baseline has no scored cell")
    missing = [cell for cell in base if cell not in mine]
    if missing:
        return Speedup(ratios, None, f"not scored: {', '.join(f'{cell} ({_why(record, cell)})' for cell in missing)}")
    return Speedup(ratios, geometric_mean([ratio for _, ratio in ratios]))


def score_against(record: TrialRecord, records: Sequence[TrialRecord]) -> float | None:
    """Speed-up of a trial over no speculation as measured so far; None if there is none."""
    return speedup(record, pooled_rates(records, NO_SPECULATION)).score


def _why(record: TrialRecord, cell_id: str) -> str:
    found = next((cell.metrics for cell in record.cells if cell.metrics.cell_id == cell_id), None)
    if found is None:
        return "not measured"
    return ", ".join(found.flags) or "no throughput"
