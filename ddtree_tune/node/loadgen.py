"""One repeat of one cell: warm up, open the window, close it, drain.

A closed loop holds exactly C requests in flight: a slot sends its next request the moment its last
one ends. The warm-up is full waves of other prompts; the last wave's lengths are staggered, so that
the slots do not run in lockstep afterwards. The window opens once every slot has done its warm-up
and the prompts of the window are cut, so that no counting disturbs it.

All of it runs on one event loop; its own lag is sampled while the window is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.errors import EngineError, TuneError
from ddtree_tune.core.trace import CellRun, Phase
from ddtree_tune.core.workload import ClosedLoop
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.counting import Counter, Counts
from ddtree_tune.node.feed import Feed
from ddtree_tune.node.prompts import load_prompts
from ddtree_tune.node.slots import Limits, LoadRun

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.spec import LoadSpec
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.feed import Cut
    from ddtree_tune.node.prompts import Prompt


async def run_cell(
    endpoint: Endpoint,
    cell: Cell,
    cut: Cut,
    *,
    repeat: int,
    seed: int = 0,
    limits: Limits | None = None,
    prompts_sha: str = "",
) -> CellRun:
    """Measure one repeat of one cell.

    Args:
        endpoint: the server.
        cell: the shape of the load.
        cut: the prompts.
        repeat: which repeat this is.
        seed: of an open loop's arrivals; with the repeat it decides them.
        limits: how long to wait for what.
        prompts_sha: what the prompts were cut from.

    Returns:
        The traces and the window. It is cut short or None when the server is gone; the failures in
        the traces say how.

    Raises:
        EngineError: no request received a token for too long (`hang_no_progress`).
        LoadError: a prompt cannot be cut, or an open loop ran away.
    """
    run = LoadRun(endpoint, cell, Feed(cut), limits or Limits())
    wall = datetime.now(UTC).isoformat(timespec="seconds")
    gc.collect()
    gc.freeze()  # a collection over all that is loaded would stop the clock for tens of milliseconds
    try:
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            run.stack, run.group = stack, group
            if isinstance(cell.arrival, ClosedLoop):
                await run.closed(cell.arrival.concurrency)
            else:
                await run.open(cell.arrival, np.random.default_rng([seed, repeat]))
    except BaseExceptionGroup as errors:
        ours = errors.subgroup(TuneError)
        if ours is None:
            raise
        raise _first(ours) from None
    finally:
        gc.unfreeze()
    traces = tuple(sorted(run.traces, key=lambda trace: trace.sent_ns))
    return CellRun(cell, repeat, run.window, traces, tuple(run.lag_ns), wall, prompts_sha)


class NodeLoader:
    """``ports.Loader`` on this machine: every cell of a load, each repeat with prompts of its own."""

    def __init__(self, load: LoadSpec, *, seed: int, stall_s: float) -> None:
        """Read the prompts.

        Args:
            load: the matrix and what is sent.
            seed: of the prompts, and of an open loop's arrivals.
            stall_s: no token from any request for so long is a hang.
        """
        self._load = load
        self._seed = seed
        self._stall_s = stall_s
        self._cells = load.cells()
        streams = len(self._cells) * load.repeats * len(Phase)
        self._prompts = load_prompts(load.prompts, seed=seed, streams=streams)
        self._counts: dict[Endpoint, Counts] = {}

    def run(self, endpoint: Endpoint, cell: Cell, repeat: int) -> CellRun:
        """See ``ports.Loader``."""
        return asyncio.run(self._measure(endpoint, cell, repeat))

    async def _measure(self, endpoint: Endpoint, cell: Cell, repeat: int) -> CellRun:
        first = (self._cells.index(cell) * self._load.repeats + repeat) * len(Phase)
        streams = {phase: first + at for at, phase in enumerate(Phase)}
        counts = self._counts.setdefault(endpoint, Counts())
        async with EngineClient(endpoint, timeout_s=self._stall_s, stall_s=self._stall_s) as client:
            with contextlib.suppress(EngineError):  # not every server has it; prompts never repeat anyway
                await client.get_text("/flush_cache")
            counter = Counter(client, self._prompts.samples, counts)

            def cut(phase: Phase, index: int) -> Awaitable[Prompt]:
                return self._prompts.cut(cell, streams[phase], index, counter)

            return await run_cell(
                endpoint,
                cell,
                cut,
                repeat=repeat,
                seed=self._seed,
                limits=Limits(stall_s=self._stall_s),
                prompts_sha=self._prompts.sha256,
            )


def _first(errors: BaseExceptionGroup[TuneError]) -> TuneError:
    """The first plain error of a group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, TuneError):
        raise error
    return error
