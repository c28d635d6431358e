"""When a cell begins, when its window opens and closes, and when it is given up.

One `Watch` decides for all load processes of a cell, from what each of them tells in a `Tally`; what
it decided are `Orders`: instants on the one clock that they share. Alone a process decides for
itself and at once; for a crew the instants lie a little ahead, so that they reach every member
before they come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ddtree_tune.core.errors import EngineError, FailureClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.workload import Cell

TICK_S = 0.01
"""Between two looks at the cell."""
LONGEST = 4
"""A window that waits for requests stays open this many times its length, at most."""
_HOPELESS = 8
"""Failures in a row, beside two per slot, after which the cell is given up."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a cell waits."""

    stall_s: float = 30.0
    """No token from any request for so long is a hang."""
    request_s: float = 1800.0
    """Most time for one request."""
    drain_s: float = 1800.0
    """Most time for the requests that are in flight when the window closes; then they are cancelled."""


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of a cell's slots, arrivals and prompts one load process has: every ``of``-th."""

    number: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class Tally:
    """What one load process has seen so far."""

    at_the_line: bool
    """The first prompts are cut."""
    ready: bool
    """Its slots have done their warm-up, and the prompts of the window are cut."""
    broken: bool
    """It can cut no more prompts, because the server does not count any more."""
    in_flight: int
    progress_ns: int
    """The last token of any request, or the sending of one that found the process idle; 0 before."""
    ended: int
    """Requests that have ended well since the window opened."""
    sent_and_ended: int
    """Those of them that were also sent since."""
    failed_in_a_row: int
    refused_in_a_row: int


@dataclass(frozen=True, slots=True)
class Orders:
    """Instants in ``perf_counter_ns``; None until they are decided."""

    begin_ns: int | None = None
    """The first requests may go."""
    open_ns: int | None = None
    close_ns: int | None = None


Lead: TypeAlias = Callable[[Tally], Orders]
"""Takes what a load process has seen and gives the orders of that moment."""


class Watch:
    """Decides for one repeat of one cell."""

    def __init__(self, cell: Cell, limits: Limits, *, ahead_ns: int = 0) -> None:
        """Set up.

        Args:
            cell: the shape of the load.
            limits: how long to wait for what.
            ahead_ns: how far in the future an instant lies when it is decided.
        """
        self.orders = Orders()
        self._cell = cell
        self._limits = limits
        self._ahead_ns = ahead_ns
        self._looked_ns: int | None = None

    def look(self, tallies: Sequence[Tally], now_ns: int) -> Orders:
        """Decide what can be decided now.

        Args:
            tallies: the newest of every load process.
            now_ns: ``perf_counter_ns``.

        Raises:
            EngineError: no request received a token for too long.
        """
        held_s = 0.0 if self._looked_ns is None else (now_ns - self._looked_ns) / 1e9
        self._looked_ns = now_ns
        orders, soon_ns = self.orders, now_ns + self._ahead_ns
        if orders.close_ns is not None:
            return orders
        if orders.begin_ns is None:
            if all(tally.at_the_line for tally in tallies):
                self.orders = replace(orders, begin_ns=soon_ns)
            return self.orders
        # Whoever was held up for so long has not yet seen what came meanwhile.
        if self._limits.stall_s > 2 * held_s:
            self._refuse_silence(tallies, now_ns, orders.begin_ns)
        if self._hopeless(tallies) or (orders.open_ns is not None and self._enough(tallies, now_ns, orders.open_ns)):
            self.orders = replace(orders, close_ns=soon_ns)
        elif orders.open_ns is None and all(tally.ready for tally in tallies):
            self.orders = replace(orders, open_ns=soon_ns)
        return self.orders

    def _refuse_silence(self, tallies: Sequence[Tally], now_ns: int, begin_ns: int) -> None:
        silent_s = (now_ns - max(begin_ns, *(tally.progress_ns for tally in tallies))) / 1e9
        in_flight = sum(tally.in_flight for tally in tallies)
        if in_flight and silent_s > self._limits.stall_s:
            raise EngineError(
                f"a token must come within {self._limits.stall_s:g} s, but got none from {in_flight} requests "
                f"in flight in {self._cell.cell_id}; see the server's log",
                FailureClass.HANG,
            )

    def _hopeless(self, tallies: Sequence[Tally]) -> bool:
        """Whether nothing more will come of this server."""
        users = self._cell.concurrency or 1
        return (
            any(tally.broken for tally in tallies)
            or sum(tally.failed_in_a_row for tally in tallies) >= 2 * users + _HOPELESS
            or sum(tally.refused_in_a_row for tally in tallies) >= users
        )

    def _enough(self, tallies: Sequence[Tally], now_ns: int, open_ns: int) -> bool:
        """Whether the window has seen what the cell asks and one turnover of every slot."""
        open_s = (now_ns - open_ns) / 1e9
        if open_s < self._cell.window_s:
            return False
        turned_over = sum(tally.ended for tally in tallies) >= (self._cell.concurrency or 1)
        seen = sum(tally.sent_and_ended for tally in tallies) >= self._cell.min_requests
        return (turned_over and seen) or open_s >= LONGEST * self._cell.window_s
