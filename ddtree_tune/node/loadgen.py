"""One repeat of one cell: warm up, open the window, close it, drain.

A closed loop holds exactly C requests in flight: a slot sends its next request the moment its last
one ends. The warm-up is full waves of other prompts; the last wave's lengths are staggered, so that
the slots do not run in lockstep afterwards. The window opens once every slot has done its warm-up
and the prompts of the window are cut, so that no counting disturbs it.

A process runs all of its share on one event loop, and a probe says how late that loop was while the
window was open. A cell that one process cannot carry is shared by a crew of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.errors import EngineError, first_of
from ddtree_tune.core.flags import failed
from ddtree_tune.core.trace import CellRun, Phase
from ddtree_tune.core.workload import ClosedLoop
from ddtree_tune.matrix import RETRIES
from ddtree_tune.node import loops
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.counting import Counter, Counts
from ddtree_tune.node.crew import crew_size, run_crew
from ddtree_tune.node.feed import Feed
from ddtree_tune.node.lag import LagProbe
from ddtree_tune.node.prompts import load_prompts
from ddtree_tune.node.remembered import RememberedPrompts
from ddtree_tune.node.slots import LoadRun
from ddtree_tune.node.sockets import route_to
from ddtree_tune.node.watch import Limits, Share, Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.spec import LoadSpec
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.feed import Cut
    from ddtree_tune.node.prompts import Prompt, Prompts
    from ddtree_tune.node.watch import Lead, Orders, Tally

ALL = Share()
"""A process that carries a cell by itself."""
_TRIES = 1 + RETRIES
"""A repeat that a busy moment spoiled is measured again, with prompts that are as fresh."""


async def run_cell(
    endpoint: Endpoint,
    cell: Cell,
    cut: Cut,
    *,
    repeat: int,
    seed: int = 0,
    limits: Limits | None = None,
    prompts_sha: str = "",
    share: Share = ALL,
    lead: Lead | None = None,
) -> CellRun:
    """Measure one repeat of one cell, or a process's share of it.

    Args:
        endpoint: the server.
        cell: the shape of the load, all of it.
        cut: the prompts.
        repeat: which repeat this is.
        seed: of an open loop's arrivals; with the repeat it decides them.
        limits: how long to wait for what.
        prompts_sha: what the prompts were cut from.
        share: which of the slots, arrivals and prompts are this process's.
        lead: who decides the window; this process itself when None.

    Returns:
        The traces and the window. It is cut short or None when the server is gone; the failures in
        the traces say how.

    Raises:
        EngineError: no request received a token for too long (`hang_no_progress`), or the server
            counts no tokens though no request fails.
        LoadError: a prompt cannot be cut, or an open loop ran away.
    """
    limits = limits or Limits()
    run = LoadRun(endpoint, cell, Feed(cut, share), limits, lead or _alone(cell, limits), share)
    wall = datetime.now(UTC).isoformat(timespec="seconds")
    lag_ns: tuple[int, ...] = ()
    gc.collect()
    gc.freeze()  # a collection over all that is loaded would stop the clock for tens of milliseconds
    try:
        async with LagProbe() as probe, contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            run.stack, run.group = stack, group
            if isinstance(cell.arrival, ClosedLoop):
                await run.closed(cell.arrival.concurrency)
            else:
                await run.open(cell.arrival, np.random.default_rng([seed, repeat]))
            if run.window is not None:
                lag_ns = probe.samples(run.window.start_ns, run.window.end_ns)
    except BaseExceptionGroup as errors:
        raise (first_of(errors) or errors) from None
    finally:
        gc.unfreeze()
    traces = tuple(sorted(run.traces, key=lambda trace: trace.sent_ns))
    if run.broken is not None and not any(map(failed, traces)):
        raise run.broken
    return CellRun(cell, repeat, run.window, traces, lag_ns, wall, prompts_sha)


def _alone(cell: Cell, limits: Limits) -> Lead:
    """A process that decides for itself, at once."""
    watch = Watch(cell, limits)

    def lead(tally: Tally) -> Orders:
        return watch.look([tally], time.perf_counter_ns())

    return lead


@dataclass(frozen=True, slots=True)
class Job:
    """All that a load process must know to measure its share of a cell."""

    endpoint: Endpoint
    cell: Cell
    repeat: int
    seed: int
    limits: Limits
    prompts: Prompts
    streams: Mapping[Phase, int]
    """Which stream of the prompts each phase takes."""
    counts: Counts
    """What is known of the server's tokens; the measurement adds to it."""

    async def measure(self, share: Share = ALL, lead: Lead | None = None) -> CellRun:
        """Measure a share of the cell; see ``run_cell``."""
        patience_s = self.limits.stall_s
        async with EngineClient(self.endpoint, timeout_s=patience_s, stall_s=patience_s) as client:
            if share.number == 0:  # all wait for all before the first request
                with contextlib.suppress(EngineError):  # not every server has it; prompts never repeat anyway
                    await client.get_text("/flush_cache")
            counter = Counter(client, self.prompts.samples, self.counts)

            def cut(phase: Phase, index: int) -> Awaitable[Prompt]:
                return self.prompts.cut(self.cell, self.streams[phase], index, counter)

            return await run_cell(
                self.endpoint,
                self.cell,
                cut,
                repeat=self.repeat,
                seed=self.seed,
                limits=self.limits,
                prompts_sha=self.prompts.sha256,
                share=share,
                lead=lead,
            )


def prompts_of(load: LoadSpec, seed: int) -> Prompts:
    """What a load asks, in as many streams as its cells, repeats, tries and phases need.

    Raises:
        LoadError: the prompts cannot be read.
    """
    streams = len(load.cells()) * load.repeats * _TRIES * len(Phase)
    return load_prompts(load.prompts, seed=seed, streams=streams, families=load.families)


def streams_of(load: LoadSpec, cell: Cell, repeat: int, tried: int = 0) -> dict[Phase, int]:
    """Which stream of ``prompts_of`` each phase of one repeat takes.

    Args:
        load: the matrix.
        cell: one of its cells.
        repeat: which repeat.
        tried: how often the repeat was measured before.
    """
    cells = load.cells()
    first = ((tried * len(cells) + cells.index(cell)) * load.repeats + repeat) * len(Phase)
    return {phase: first + at for at, phase in enumerate(Phase)}


class NodeLoader:
    """Measures the cells of a load on this machine, each repeat with prompts of its own."""

    def __init__(self, load: LoadSpec, *, seed: int, stall_s: float) -> None:
        """Read the prompts.

        Args:
            load: the matrix and what is sent.
            seed: of the prompts, and of an open loop's arrivals.
            stall_s: no token from any request for so long is a hang.
        """
        self._load = load
        self._seed = seed
        self._limits = Limits(stall_s=stall_s)
        self._prompts = RememberedPrompts(prompts_of(load, seed))
        self._counts: dict[Endpoint, Counts] = {}
        self._tried: dict[tuple[Endpoint, Cell, int], int] = {}

    def run(self, endpoint: Endpoint, cell: Cell, repeat: int) -> CellRun:
        """Measure one repeat of one cell.

        Raises:
            EngineError: the server hangs, or cannot count the prompts.
            LoadError: a prompt cannot be cut, an open loop ran away, or a load process broke.
        """
        tried = self._tried.get((endpoint, cell, repeat), 0)
        self._tried[endpoint, cell, repeat] = (tried + 1) % _TRIES
        job = Job(
            endpoint=endpoint,
            cell=cell,
            repeat=repeat,
            seed=self._seed,
            limits=self._limits,
            prompts=self._prompts,
            streams=streams_of(self._load, cell, repeat, tried),
            counts=self._counts.setdefault(endpoint, Counts()),
        )
        processes = self._load.processes or crew_size(cell)
        run = loops.run(job.measure()) if processes == 1 else run_crew(job, processes)
        return replace(run, route=route_to(endpoint.base_url, endpoint.host_name))
