"""What a trial needs from the world, as protocols.

``node`` and ``cluster`` implement them; ``trial`` and the tests use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.coding import Attempt
    from ddtree_tune.core.engine import Endpoint, EngineConfig, EngineHandle, EngineState, Starting
    from ddtree_tune.core.gate import Probe
    from ddtree_tune.core.record import Fingerprint, TrialRecord
    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell


Check: TypeAlias = Callable[[], None]
"""Raises TuneError if the server has ended: called again and again while something runs that needs it."""
CHECK_PERIOD_S = 1.0
"""Between two checks."""


class Engine(Protocol):
    """One server of one trial on this trial's node."""

    def launch(self, config: EngineConfig) -> None:
        """Start a server's process; raise EngineError if this node cannot."""
        ...

    def ready(self, wait_s: float) -> Starting | EngineHandle:
        """Wait for the launched server, a while at most; what it does meanwhile if it takes longer.

        Returns early when it begins something else. Raises EngineError if it ended, is lost or late.
        """
        ...

    def probe(self, handle: EngineHandle) -> Probe:
        """Ask a fresh server for proof of what it is."""
        ...

    def state(self) -> EngineState:
        """Say how the process is doing, at any time."""
        ...

    def stop(self) -> str:
        """End the server and all that it started; return its log. Safe to call twice."""
        ...


class Gpus(Protocol):
    """The GPUs of this trial's node."""

    def refuse_taken(self) -> None:
        """Raise EngineError (`dirty_node`) if somebody else is on them, or memory of an earlier server."""
        ...

    def metered(self, run: CellRun) -> CellRun:
        """A repeat with what they did in its window, or why that is not known."""
        ...

    def await_released(self) -> None:
        """Wait until an ended server's memory is back; raise EngineError (`dirty_node`) if it does not come."""
        ...


class Loader(Protocol):
    """Sends load."""

    def run(self, endpoint: Endpoint, cell: Cell, repeat: int, check: Check) -> CellRun:
        """Measure one repeat of one cell; what ``check`` raises meanwhile ends it at once."""
        ...


class Grader(Protocol):
    """Runs the coding evaluation."""

    def run(self, endpoint: Endpoint, check: Check) -> Sequence[Attempt]:
        """Ask every problem and grade every reply; what ``check`` raises meanwhile ends it at once."""
        ...


class Node(Protocol):
    """The machine that a trial holds."""

    def fingerprint(self) -> Fingerprint:
        """Say what this machine is."""
        ...

    def now_s(self) -> float:
        """Seconds of a monotonic clock."""
        ...

    def utc(self) -> str:
        """The wall clock, ISO 8601 in UTC."""
        ...


class Sink(Protocol):
    """Keeps records."""

    def write(self, record: TrialRecord) -> None:
        """Keep all of a record; a later write of the same trial replaces it."""
        ...
