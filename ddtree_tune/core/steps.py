"""What a verify step took in a cell as it was measured.

Between the first tokens of its requests an engine reads prompts and takes steps; what is left of
the time without the prompts, over the tokens that a step commits, is the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddtree_tune.core.engine import EffectiveConfig
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.record import TrialRecord

_LEAST_SHARE = 0.05
"""Where less of the engine's time is spent on decoding, a step's time is no more than noise."""


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One measured step time."""

    cell_id: str
    width: int
    """Tokens of one sequence in a verify pass."""
    step_s: float


def width_of(effective: EffectiveConfig | None) -> int | None:
    """Tokens of one sequence in a verify pass: the budget or the rest of the block, and the anchor.

    Returns:
        None if the server did not say.
    """
    if effective is None or effective.algorithm is None:
        return None
    if effective.algorithm is Algorithm.NONE:
        return 1
    if effective.algorithm is Algorithm.TREE and effective.budget is not None:
        return effective.budget + 1
    return effective.block_size


def prefill_seconds(cells: Iterable[CellMetrics]) -> dict[int, float]:
    """Time that a prompt of each context takes the engine: TTFT where the fewest others are served beside it."""
    found: dict[int, float] = {}
    for cell in sorted(cells, key=lambda cell: -(cell.in_flight_mean or math.inf)):
        if cell.ttft_s.mean is not None and cell.in_flight_mean is not None:
            found[cell.context] = cell.ttft_s.mean
    return found


def prefill_share(cell: CellMetrics, prefill_s: float) -> float | None:
    """Share of the engine's time that goes into prompts: in_flight_mean * prefill_s / e2e_s.

    While one request lives, each of those in flight is replaced by a new one, whose prompt holds up
    all. Source: Little's law.

    Returns:
        None if the cell lacks a number.
    """
    if cell.in_flight_mean is None or not cell.e2e_s.mean:
        return None
    return min(1.0, cell.in_flight_mean * prefill_s / cell.e2e_s.mean)


def step_seconds(cell: CellMetrics, prefill_s: float, *, speculates: bool) -> float | None:
    """Time of a verify step: accept_len * in_flight_mean / output_tps * (1 - prefill_share).

    A user gets a token every in_flight_mean / output_tps seconds, and accept_len of them in a step;
    what the engine spends on prompts is no part of a step.

    Args:
        cell: as measured.
        prefill_s: of a prompt of its context.
        speculates: whether steps commit ``accept_len`` tokens; otherwise it is one.

    Returns:
        None if the cell lacks a number, may not be scored, or hardly decodes.
    """
    share = prefill_share(cell, prefill_s)
    tokens = cell.accept_len if speculates else 1.0
    if not cell.scored or not cell.output_tps or not cell.in_flight_mean or tokens is None or share is None:
        return None
    if 1 - share < _LEAST_SHARE:
        return None
    return tokens * cell.in_flight_mean / cell.output_tps * (1 - share)


def step_points(records: Iterable[TrialRecord]) -> tuple[StepPoint, ...]:
    """Every step time that trials measured in which nothing broke, those of width 1 without speculation."""
    points = []
    for record in records:
        width = width_of(record.effective)
        if not record.measured or width is None:
            continue
        cells = [result.metrics for result in record.cells]
        prefill = prefill_seconds(cells)
        for cell in cells:
            if cell.context not in prefill:
                continue
            step_s = step_seconds(cell, prefill[cell.context], speculates=width > 1)
            if step_s is not None:
                points.append(StepPoint(cell.cell_id, width, step_s))
    return tuple(points)
