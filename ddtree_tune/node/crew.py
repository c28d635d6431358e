"""Several load processes that share one cell, on one time axis.

One process reads a few thousand chunks a second and then begins to see them late; what it would
report is then its own speed. A crew splits the slots, the arrivals and the prompts of a cell, and
one `Watch` in the parent decides for all: the members tell what they see at every tick, and get
instants that lie a little ahead. ``perf_counter_ns`` is one clock for all processes of a machine
(CLOCK_MONOTONIC on Linux); every member's first reading is checked against the parent's.

Members are started afresh for each repeat, with the interpreter and not by forking: what runs in
the parent, such as Ray, must not run in them. A member that dies ends the cell; when the cell ends,
however it does, no member is left.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import LoadError, TuneError
from ddtree_tune.core.workload import ClosedLoop
from ddtree_tune.node.watch import TICK_S, Orders, Share, Tally, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.counting import Counts
    from ddtree_tune.node.loadgen import Job

STREAMS = 64
"""Streams that one process reads without being late (benchmarks/load)."""
_AHEAD_NS = 50_000_000
"""Orders lie so far ahead: five ticks of a member."""
_SILENCE_S = 30.0
"""A member that tells nothing for so long is stuck."""


def crew_size(cell: Cell) -> int:
    """Load processes for a cell: one per 64 requests in flight, one core left for the server.

    An open loop's requests in flight are not known before it has run: it gets one process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(math.ceil((cell.concurrency or 1) / STREAMS), cores - 1))


def run_crew(job: Job, processes: int) -> CellRun:
    """Measure one repeat of one cell with several load processes.

    Args:
        job: what to measure. What the members learn about the server's tokens is added to it.
        processes: how many; a closed loop takes no more than it has slots.

    Returns:
        One run that holds the traces and lag samples of all.

    Raises:
        LoadError: a member died or got stuck, clocks differ, or a member's own error.
        EngineError: no request received a token for too long.
    """
    arrival = job.cell.arrival
    count = min(processes, arrival.concurrency) if isinstance(arrival, ClosedLoop) else processes
    with ExitStack() as stack:
        members = [stack.enter_context(_member(job, Share(number, count))) for number in range(count)]
        _conduct(members, Watch(job.cell, job.limits, ahead_ns=_AHEAD_NS))
    for member in members:
        _learn(job.counts, member.counts)
    return _merged([member.run for member in members if member.run is not None])


@dataclass
class _Member:
    """What the parent knows of one load process."""

    share: Share
    process: subprocess.Popen[bytes]
    line: Connection
    started_ns: int
    heard_ns: int
    synchronous: bool = False
    tally: Tally | None = None
    run: CellRun | None = None
    counts: Counts | None = None

    def hear(self) -> None:
        """Take one message.

        Raises:
            LoadError: the member is dead or its clock is another.
            TuneError: what ended the member's part.
        """
        try:
            said = self.line.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            raise LoadError(
                f"a load process must live until its cell is over, but got exit code {code} from "
                f"{self.share.number + 1} of {self.share.of}; see what it printed"
            ) from None
        self.heard_ns = time.perf_counter_ns()
        if isinstance(said, Tally):
            self.tally = said
        elif isinstance(said, TuneError):
            raise said
        elif isinstance(said, int):
            if not self.started_ns <= said <= self.heard_ns:
                raise LoadError(
                    f"the load processes of a cell must share one clock, but got {said} ns between "
                    f"{self.started_ns} and {self.heard_ns} of the parent; use one process"
                )
        else:
            self.run, self.counts = said

    def order(self, orders: Orders) -> None:
        """Send orders; whoever cannot take them is heard next."""
        try:
            self.line.send(orders)
        except OSError:
            return


@contextmanager
def _member(job: Job, share: Share) -> Iterator[_Member]:
    """A load process that is gone when the block ends."""
    here, there = Pipe()
    with here:
        with there:
            now_ns = time.perf_counter_ns()
            argv = [sys.executable, "-m", "ddtree_tune.node.member", str(there.fileno())]
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()])
        try:
            member = _Member(share, process, here, now_ns, now_ns)
            here.send((job, share))
            yield member
        finally:
            process.kill()
            process.wait()


def _conduct(members: Sequence[_Member], watch: Watch) -> None:
    """Lead the members from their start until all have reported."""
    given = Orders()
    while running := [member for member in members if member.run is None]:
        heard = wait([member.line for member in running], timeout=TICK_S)
        for member in running:
            if member.line in heard:
                member.hear()
        now_ns = time.perf_counter_ns()
        for member in running:
            if now_ns - member.heard_ns > _SILENCE_S * 1e9:
                raise LoadError(
                    f"a load process must tell what it sees every {TICK_S:g} s, but got nothing for "
                    f"{_SILENCE_S:g} s from {member.share.number + 1} of {member.share.of}; is the machine overloaded?"
                )
        tallies = [member.tally for member in members if member.tally is not None]
        if len(tallies) == len(members):
            orders = watch.look(tallies, now_ns)
            if orders != given:
                given = orders
                for member in running:
                    member.order(orders)


def _learn(counts: Counts, more: Counts | None) -> None:
    """Add what a member has learned about the server's tokens."""
    if more is not None:
        counts.lines.update(more.lines)
        counts.short.update(more.short)
        counts.estimated = counts.estimated or more.estimated


def _merged(runs: Sequence[CellRun]) -> CellRun:
    """The members' runs as one; they have one window, for one watch decided it."""
    traces = sorted((trace for run in runs for trace in run.traces), key=lambda trace: trace.sent_ns)
    lag_ns = tuple(late for run in runs for late in run.lag_ns)
    return replace(runs[0], traces=tuple(traces), lag_ns=lag_ns)
