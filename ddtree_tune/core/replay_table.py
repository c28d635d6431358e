"""A replayed trace for people and for programs: acceptance over the (budget, topk) plane."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.replay import positions, replay, replay_chain, smallest_enough
from ddtree_tune.core.tables import WIDTH, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddtree_tune.core.draft_trace import DraftTrace
    from ddtree_tune.core.replay import Replay

BUDGETS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TOPKS = (1, 2, 3, 4, 6, 8)
_COLUMNS = 6
"""Topks that stand side by side on a page."""


class ReplayReport:
    """The replays of a trace, one per context, in words and in JSON."""

    def __init__(self, trace: DraftTrace, budgets: Sequence[int], topks: Sequence[int]) -> None:
        """Replay every context.

        Raises:
            SpecError: the trace cannot tell of a topk.
        """
        self._header = trace.header
        traces = {
            context: part
            for context, part in trace.by_context().items()
            if any(len(r.candidates) for r in part.requests)
        }
        self._parts = [
            (context, part, replay(part, sorted(set(budgets)), sorted(set(topks))), replay_chain(part))
            for context, part in traces.items()
        ]

    def lines(self) -> Iterator[str]:
        """A table per context, and what more budget or topk would no longer bring."""
        header = self._header
        window = "none" if header.window is None else header.window
        yield f"{header.target} drafted by {header.drafter}: block size {header.block_size}, window {window}"
        for context, part, plane, chain in self._parts:
            drafted = sum(len(request.candidates) > 0 for request in part.requests)
            where = "All requests" if context is None else f"Context {context}"
            yield ""
            yield f"{where}: acceptance length with its 95 % interval, {drafted} requests, {positions(part)} positions"
            for first in range(0, len(plane.topks), _COLUMNS):
                columns = range(first, min(first + _COLUMNS, len(plane.topks)))
                head = (">budget", *(f">topk {plane.topks[column]}" for column in columns))
                yield from text_table(
                    head,
                    [
                        (str(budget), *(_value(plane, row, column) for column in columns))
                        for row, budget in enumerate(plane.budgets)
                    ],
                )
            yield from textwrap.wrap(
                f"  Plain chain of {header.depth}: {_value(chain, 0, 0)}. {_saturation(plane)}",
                WIDTH,
                subsequent_indent="  ",
            )

    def fields(self) -> dict[str, Any]:
        """The same for programs; planes are [budget][topk]."""
        return {
            "trace": self._header.model_dump(mode="json"),
            "contexts": [
                {
                    "context": context,
                    "requests": len(part.requests),
                    "positions": positions(part),
                    "budgets": list(plane.budgets),
                    "topks": list(plane.topks),
                    **_planes(plane),
                    "chain": _planes(chain),
                }
                for context, part, plane, chain in self._parts
            ],
        }


def _planes(plane: Replay) -> dict[str, Any]:
    interval = plane.interval
    return {
        "accept_len": plane.accept_len.tolist(),
        "accept_len_low": interval and interval.low_BK.tolist(),
        "accept_len_high": interval and interval.high_BK.tolist(),
        "verify_steps": plane.verify_steps.sum(axis=0).tolist(),
    }


def _value(plane: Replay, row: int, column: int) -> str:
    interval = plane.interval
    half = f" ±{interval.high_BK[row, column] - plane.accept_len[row, column]:.2f}" if interval else ""
    return f"{plane.accept_len[row, column]:.2f}{half}"


def _saturation(plane: Replay) -> str:
    """Where a larger knob brings less than a hundredth."""
    accept_len = plane.accept_len
    by_topk = ", ".join(
        f"{plane.budgets[smallest_enough(accept_len[:, column])]} for topk {topk}"
        for column, topk in enumerate(plane.topks)
    )
    best = plane.topks[smallest_enough(accept_len[-1])]
    return (
        f"Within 1 % of budget {plane.budgets[-1]} from budget {by_topk}; there, within 1 % of topk "
        f"{plane.topks[-1]} from topk {best}."
    )
