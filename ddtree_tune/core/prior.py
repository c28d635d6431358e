"""What a setting should gain before it is measured: replayed acceptance over modelled step time.

A token of one user takes its share of the prompts, which no setting changes, and its share of a
verify step: prefill + step_s / accept_len. The acceptance is exact for the traced requests, the
step time is known near the widths that were measured. The search itself goes by `foresight`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.replay import replay
from ddtree_tune.core.step_time import Estimate
from ddtree_tune.core.steps import first_token_seconds, held_seconds, prefill_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddtree_tune.core.draft_trace import DraftTrace
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.replay import Replay
    from ddtree_tune.core.step_time import StepTimeModel

_Plane: TypeAlias = dict[tuple[int, int], Estimate]
"""Acceptance length by budget and topk."""

_FEW = 0.2
"""Deviation of the logarithm of an acceptance that fewer than three requests tell."""


@dataclass(frozen=True, slots=True)
class BaseCell:
    """A cell of the load matrix without speculation."""

    cell_id: str
    context: int
    output_tps: float
    user_s: float
    """Seconds from one token of a user to the next: in_flight_mean / output_tps."""
    prefill_share: float
    """Share of it that goes into prompts, see `steps.prefill_share`."""


def base_cells(records: Iterable[TrialRecord]) -> tuple[BaseCell, ...]:
    """The cells of all complete trials without speculation; of repeated ones the means."""
    seen: dict[str, list[BaseCell]] = {}
    records = list(records)
    held = held_seconds(records)
    for record in records:
        if record.config.algorithm is not Algorithm.NONE or record.status is not TrialStatus.COMPLETE:
            continue
        cells = [result.metrics for result in record.cells]
        first = first_token_seconds(cells)
        for cell in cells:
            own = first.get(cell.context)
            share = None if own is None else prefill_share(cell, own, min(own, held.get(cell.context, own)))
            if cell.scored and cell.output_tps and cell.in_flight_mean and share is not None:
                user_s = cell.in_flight_mean / cell.output_tps
                base = BaseCell(cell.cell_id, cell.context, cell.output_tps, user_s, share)
                seen.setdefault(cell.cell_id, []).append(base)
    return tuple(
        BaseCell(
            cell_id,
            of[0].context,
            math.exp(float(np.mean([math.log(one.output_tps) for one in of]))),
            math.exp(float(np.mean([math.log(one.user_s) for one in of]))),
            float(np.mean([one.prefill_share for one in of])),
        )
        for cell_id, of in seen.items()
    )


def cell_speedup(base: BaseCell, step_s: Estimate, accept_len: Estimate) -> Estimate:
    """Speed-up over no speculation: 1 / (prefill_share + step_s / (accept_len * user_s)).

    Both times are those of one token of one user, in units of the baseline's. The deviation is that
    of the decoding part, which alone is unsure.
    """
    decoding = math.exp(step_s.log - accept_len.log) / base.user_s
    whole = base.prefill_share + decoding
    return Estimate(-math.log(whole), decoding / whole * math.hypot(step_s.deviation, accept_len.deviation))


class Acceptances:
    """Replayed acceptance of many settings; replayed once, asked often."""

    def __init__(self, traces: Sequence[DraftTrace], configs: Iterable[EngineConfig]) -> None:
        """Replay.

        Args:
            traces: one per window; settings of other windows are unknown.
            configs: trees and chains that will be asked for.
        """
        wanted = tuple(configs)
        self._depths = {trace.header.window: trace.header.depth for trace in traces}
        self._planes = {trace.header.window: _planes(trace, wanted) for trace in traces}

    def width(self, config: EngineConfig) -> int | None:
        """Tokens of one sequence in a verify pass; None without drafts, or of a window that was not traced."""
        depth = self._depths.get(config.window)
        if depth is None or config.algorithm not in {Algorithm.TREE, Algorithm.CHAIN}:
            return None
        return _effective(config, depth)[0] + 1

    def __call__(self, config: EngineConfig, context: int) -> Estimate | None:
        """Acceptance length at a context, or that of requests of no stated one; None where no trace tells."""
        planes = self._planes.get(config.window, {})
        plane = planes.get(context) or planes.get(None)
        if plane is None or self.width(config) is None:
            return None
        return plane.get(_effective(config, self._depths[config.window]))


@dataclass(frozen=True, slots=True)
class Prior:
    """Foretells the score of any setting whose acceptance was replayed."""

    base: Sequence[BaseCell]
    """Cells without speculation; the score is over all of them."""
    steps: StepTimeModel
    """Of what was measured so far."""
    acceptances: Acceptances

    def cells(self, config: EngineConfig) -> dict[str, Estimate]:
        """Speed-up over no speculation by cell, of those of which enough is known."""
        found: dict[str, Estimate] = {}
        width = self.acceptances.width(config)
        if width is None:
            return found
        for base in self.base:
            accept_len = self.acceptances(config, base.context)
            step_s = self.steps(base.cell_id, width)
            if accept_len is not None and step_s is not None:
                found[base.cell_id] = cell_speedup(base, step_s, accept_len)
        return found

    def __call__(self, config: EngineConfig) -> Estimate | None:
        """The score: the geometric mean of the cells' speed-ups.

        The cells' errors are taken to be one error: they share the trace and the width.

        Returns:
            None where a cell cannot be foretold.
        """
        cells = self.cells(config)
        if not cells or len(cells) < len(self.base):
            return None
        logs, deviations = zip(*cells.values(), strict=True)
        return Estimate(float(np.mean(logs)), float(np.mean(deviations)))


def _effective(config: EngineConfig, depth: int) -> tuple[int, int]:
    """Budget and topk that count: a chain ends with its block."""
    budget, topk = config.budget or depth, config.topk or 1
    return (min(budget, depth), 1) if topk == 1 else (budget, topk)


def _planes(trace: DraftTrace, configs: Sequence[EngineConfig]) -> dict[int | None, _Plane]:
    """The replay of every context over what the settings of the trace's window need."""
    mine = [_effective(one, trace.header.depth) for one in configs if one.window == trace.header.window]
    known = [(budget, topk) for budget, topk in mine if topk <= trace.header.topk]
    if not known:
        return {}
    budgets, topks = (tuple(sorted(set(values))) for values in zip(*known, strict=True))
    return {context: _estimates(replay(part, budgets, topks)) for context, part in trace.by_context().items()}


def _estimates(plane: Replay) -> _Plane:
    accept_len, deviation = plane.accept_len, plane.deviation
    relative = np.full_like(accept_len, _FEW) if deviation is None else deviation / accept_len
    return {
        (budget, topk): Estimate(math.log(accept_len[row, column]), float(relative[row, column]))
        for row, budget in enumerate(plane.budgets)
        for column, topk in enumerate(plane.topks)
    }
