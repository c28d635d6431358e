"""What a verify step took in a cell as it was measured.

Between the first tokens of its requests an engine reads prompts and takes steps; what is left of
the time without the prompts, over the tokens that a step commits, is the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddtree_tune.core.engine import EffectiveConfig
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.record import TrialRecord

_LEAST_SHARE = 0.05
"""Where less of the engine's time is spent on decoding, a step's time is no more than noise."""
_MORE = 0.5
"""Requests in flight that are more than a difference of rounding."""


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


def first_token_seconds(cells: Iterable[CellMetrics]) -> dict[int, float]:
    """Time to first token of each context where the fewest others are served beside it."""
    return {context: cell.ttft_s.mean for context, cell in _fewest(cells).items() if cell.ttft_s.mean is not None}


def held_seconds(records: Iterable[TrialRecord]) -> dict[int, float]:
    """How long a prompt of each context holds up every other request, at most.

    A first token takes longer than that where its way to the engine and back takes time, for others
    go on meanwhile. But a step at more users is no shorter than one at the fewest: so without
    speculation what is left of a request's life bounds it,

        held_s <= (e2e_s - first_s - steps * fewest_step_s) / (in_flight_mean - 1)

    Returns:
        The least bound of each context; no entry where there is none.
    """
    held: dict[int, float] = {}
    for record in records:
        if not record.measured or width_of(record.effective) != 1:
            continue
        cells = [result.metrics for result in record.cells]
        first, fewest = first_token_seconds(cells), _fewest(cells)
        for cell in cells:
            alone, life = _life(fewest.get(cell.context)), _life(cell)
            if alone is None or life is None or cell.context not in first or life.others < alone.others + _MORE:
                continue
            own = first[cell.context]
            step_s = max(0.0, alone.seconds - own * (1 + alone.others)) / alone.tokens
            bound = max(0.0, life.seconds - own - life.tokens * step_s) / life.others
            held[cell.context] = min(bound, held.get(cell.context, bound))
    return held


def prefill_share(cell: CellMetrics, first_s: float, held_s: float) -> float | None:
    """Share of a request's life that is no decoding: (first_s + (in_flight_mean - 1) * held_s) / e2e_s.

    While one request lives, each of those in flight is replaced by a new one, whose prompt holds up
    all. Source: Little's law.

    Args:
        cell: as measured.
        first_s: until a request's own first token, where nobody is served beside it.
        held_s: what another one's prompt holds it up.

    Returns:
        None if the cell lacks a number.
    """
    if cell.in_flight_mean is None or not cell.e2e_s.mean:
        return None
    return min(1.0, (first_s + _others(cell) * held_s) / cell.e2e_s.mean)


def step_seconds(cell: CellMetrics, share: float | None, *, speculates: bool) -> float | None:
    """Time of a verify step: accept_len * in_flight_mean / output_tps * (1 - share).

    A user gets a token every in_flight_mean / output_tps seconds, and accept_len of them in a step;
    what the engine spends on prompts is no part of a step.

    Args:
        cell: as measured.
        share: of a request's life that is no decoding.
        speculates: whether steps commit ``accept_len`` tokens; otherwise it is one.

    Returns:
        None if the cell lacks a number, may not be scored, or hardly decodes.
    """
    tokens = cell.accept_len if speculates else 1.0
    if not cell.scored or not cell.output_tps or not cell.in_flight_mean or tokens is None or share is None:
        return None
    if 1 - share < _LEAST_SHARE:
        return None
    return tokens * cell.in_flight_mean / cell.output_tps * (1 - share)


def step_points(records: Sequence[TrialRecord], among: Sequence[TrialRecord] | None = None) -> tuple[StepPoint, ...]:
    """Every step time that trials measured in which nothing broke, those of width 1 without speculation.

    Args:
        records: whose steps are asked for.
        among: all that tell how long prompts hold others up; the same ones where absent.
    """
    points = []
    held = held_seconds(records if among is None else among)
    for record in records:
        width = width_of(record.effective)
        if not record.measured or width is None:
            continue
        cells = [result.metrics for result in record.cells]
        first = first_token_seconds(cells)
        for cell in cells:
            if cell.context not in first:
                continue
            own = first[cell.context]
            share = prefill_share(cell, own, min(own, held.get(cell.context, own)))
            step_s = step_seconds(cell, share, speculates=width > 1)
            if step_s is not None:
                points.append(StepPoint(cell.cell_id, width, step_s))
    return tuple(points)


@dataclass(frozen=True, slots=True)
class _Life:
    """Of a request without speculation."""

    seconds: float
    tokens: float
    others: float
    """Requests served beside it."""


def _life(cell: CellMetrics | None) -> _Life | None:
    if cell is None or not cell.scored or not cell.output_tps or not cell.in_flight_mean or not cell.e2e_s.mean:
        return None
    return _Life(cell.e2e_s.mean, cell.e2e_s.mean * cell.output_tps / cell.in_flight_mean, _others(cell))


def _others(cell: CellMetrics) -> float:
    return max(0.0, (cell.in_flight_mean or 0.0) - 1)


def _fewest(cells: Iterable[CellMetrics]) -> dict[int, CellMetrics]:
    """Of each context the cell with the fewest in flight."""
    known = [cell for cell in cells if cell.in_flight_mean is not None]
    return {cell.context: cell for cell in sorted(known, key=lambda cell: -(cell.in_flight_mean or 0.0))}
