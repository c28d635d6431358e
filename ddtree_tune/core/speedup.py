"""How much faster one trial is than a baseline, cell by cell and over the whole matrix.

A score compares equal work: it is taken over exactly the cells that the baseline has, so that a
trial which lost a slow cell cannot look faster for it. A trial that lacks one of them has no score.
Cells count as the sweep's objective says; equally where no weights are given.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.stats import Z95, geometric_mean
from ddtree_tune.core.step_time import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.record import TrialRecord

NO_SPECULATION = EngineConfig(Algorithm.NONE)
PLAIN_CHAIN = EngineConfig(Algorithm.CHAIN)
UNRESTRICTED_CHAIN = EngineConfig(Algorithm.CHAIN_UNRESTRICTED)
BASELINES = (NO_SPECULATION, PLAIN_CHAIN, UNRESTRICTED_CHAIN)
"""What every setting is shown beside; everything else is searched."""
UNKNOWN_NOISE = 0.02
"""Deviation of the logarithm of a cell's throughput that has no interval."""


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


def pooled_rates(
    records: Iterable[TrialRecord], config: EngineConfig, of: Callable[[TrialRecord], dict[str, float]] = rates
) -> dict[str, float]:
    """Median of each cell over the complete measurements of one configuration.

    Args:
        records: of any configurations.
        config: of those that are wanted.
        of: what is taken of each; output tokens per second if nothing else is said.
    """
    seen: dict[str, list[float]] = {}
    for record in records:
        if record.config == config:
            for cell, value in of(record).items():
                seen.setdefault(cell, []).append(value)
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


def counted(base: Mapping[str, float], weights: Mapping[str, float] | None) -> dict[str, float]:
    """The weight of each cell of a baseline that counts; 1 each where no weights are given."""
    known = {cell: 1.0 if weights is None else weights.get(cell, 0.0) for cell in base}
    return {cell: weight for cell, weight in known.items() if weight > 0}


def speedup(record: TrialRecord, base: Mapping[str, float], weights: Mapping[str, float] | None = None) -> Speedup:
    """Compare a trial with a baseline.

    Args:
        record: the trial.
        base: the baseline's output tokens per second, by cell.
        weights: how much each cell counts; equally when None.
    """
    mine = rates(record)
    ratios = tuple((cell, mine[cell] / tps) for cell, tps in base.items() if cell in mine)
    if record.status is not TrialStatus.COMPLETE:
        return Speedup(ratios, None, f"the trial is {record.status}")
    if not base:
        return Speedup(ratios, None, "the baseline has no scored cell")
    shares = counted(base, weights)
    if not shares:
        return Speedup(ratios, None, "no cell that counts was scored without speculation")
    missing = [cell for cell in shares if cell not in mine]
    if missing:
        return Speedup(ratios, None, f"not scored: {', '.join(f'{cell} ({_why(record, cell)})' for cell in missing)}")
    return Speedup(ratios, geometric_mean([mine[cell] / base[cell] for cell in shares], list(shares.values())))


def log_score(
    cells: Iterable[CellMetrics], base: Mapping[str, float], weights: Mapping[str, float] | None = None
) -> Estimate | None:
    """The logarithm of a speed-up over some cells, with the deviation that their own intervals give it.

    A cell's deviation is a quarter of its 95 % interval in logarithms, log(high / low) / (2 * 1.96),
    and cells err independently; what moves a whole trial is no part of it.

    Args:
        cells: as measured; cells that ``base`` lacks are left out.
        base: output tokens per second without speculation, by cell: over these the score is taken.
        weights: how much each cell counts; equally when None.

    Returns:
        None where one of them has no scored measurement, or none counts.
    """
    mine = {one.cell_id: one for one in cells if one.scored and one.output_tps}
    shares = counted(base, weights)
    if not shares or set(shares) - set(mine):
        return None
    whole = sum(shares.values())
    log = sum(share * math.log((mine[cell].output_tps or 0.0) / base[cell]) for cell, share in shares.items())
    squares = sum((share * _noise(mine[cell])) ** 2 for cell, share in shares.items())
    return Estimate(log / whole, math.sqrt(squares) / whole)


def score_against(
    record: TrialRecord, records: Sequence[TrialRecord], weights: Mapping[str, float] | None = None
) -> float | None:
    """Speed-up of a trial over no speculation as measured so far; None if there is none."""
    return speedup(record, pooled_rates(records, NO_SPECULATION), weights).score


def _noise(cell: CellMetrics) -> float:
    """Deviation of the logarithm of a cell's throughput, by its own interval."""
    interval = cell.output_tps_ci95
    if interval is None or interval.low <= 0:
        return UNKNOWN_NOISE
    return math.log(interval.high / interval.low) / (2 * Z95)


def _why(record: TrialRecord, cell_id: str) -> str:
    found = next((cell.metrics for cell in record.cells if cell.metrics.cell_id == cell_id), None)
    if found is None:
        return "not measured"
    return ", ".join(found.flags) or "no throughput"
