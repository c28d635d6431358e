"""What a trial needs from the world, as protocols.

``node`` and ``cluster`` implement them; ``trial`` and the tests use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.coding import Attempt
    from ddtree_tune.core.engine import Endpoint, EngineConfig, EngineHandle, EngineState
    from ddtree_tune.core.gate import Probe
    from ddtree_tune.core.record import Fingerprint, TrialRecord
    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell


class Engine(Protocol):
    """One server of one trial on this trial's node."""

    def start(self, config: EngineConfig) -> EngineHandle:
        """Launch a server and return once it answers; raise EngineError if it does not."""
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


class Loader(Protocol):
    """Sends load."""

    def run(self, endpoint: Endpoint, cell: Cell, repeat: int) -> CellRun:
        """Measure one repeat of one cell."""
        ...


class Grader(Protocol):
    """Runs the coding evaluation."""

    def run(self, endpoint: Endpoint) -> Sequence[Attempt]:
        """Ask every problem and grade every reply."""
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
