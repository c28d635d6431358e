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

    from ddtree_tune.core.engine import EngineHandle
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.feed import Cut
    from ddtree_tune.node.prompts import Prompt


async def run_cell(
    base_url: str,
    model: str,
    cell: Cell,
    cut: Cut,
    *,
    repeat: int,
    seed: int = 0,
    limits: Limits | None = None,
    spec_details: bool = True,
    prompts_sha: str = "",
) -> CellRun:
    """Measure one repeat of one cell.

    Args:
        base_url: of the server.
        model: its served name.
        cell: the shape of the load.
        cut: the prompts.
        repeat: which repeat this is.
        seed: of an open loop's arrivals; with the repeat it decides them.
        limits: how long to wait for what.
        spec_details: ask for speculation counters.
        prompts_sha: what the prompts were cut from.

    Returns:
        The traces and the window. It is cut short or None when the server is gone; the failures in
        the traces say how.

    Raises:
        EngineError: no request received a token for too long (`hang_no_progress`).
        LoadError: a prompt cannot be cut, or an open loop ran away.
    """
    run = LoadRun(base_url, model, cell, Feed(cut), limits or Limits(), spec_details)
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
    """``ports.Loader`` on this machine: every cell of a spec, each repeat with prompts of its own."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._cells = spec.load.cells()
        streams = len(self._cells) * spec.load.repeats * len(Phase)
        self._prompts = load_prompts(spec.load.prompts, seed=spec.search.seed, streams=streams)
        self._counts: dict[str, Counts] = {}

    def run(self, handle: EngineHandle, cell: Cell, repeat: int) -> CellRun:
        """See ``ports.Loader``."""
        return asyncio.run(self._measure(handle, cell, repeat))

    async def _measure(self, handle: EngineHandle, cell: Cell, repeat: int) -> CellRun:
        stall_s = self._spec.engine.stall_s
        first = (self._cells.index(cell) * self._spec.load.repeats + repeat) * len(Phase)
        streams = {phase: first + at for at, phase in enumerate(Phase)}
        counts = self._counts.setdefault(handle.served_model_name, Counts())
        async with EngineClient(
            handle.base_url, handle.served_model_name, timeout_s=stall_s, stall_s=stall_s
        ) as client:
            with contextlib.suppress(EngineError):  # not every server has it; prompts never repeat anyway
                await client.get_text("/flush_cache")
            counter = Counter(client, self._prompts.samples, counts)

            def cut(phase: Phase, index: int) -> Awaitable[Prompt]:
                return self._prompts.cut(cell, streams[phase], index, counter)

            return await run_cell(
                handle.base_url,
                handle.served_model_name,
                cell,
                cut,
                repeat=repeat,
                seed=self._spec.search.seed,
                limits=Limits(stall_s=stall_s),
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
