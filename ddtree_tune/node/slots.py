"""The loops that send a cell's requests, and the watch that opens and closes its window."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.errors import EngineError, FailureClass, LoadError
from ddtree_tune.core.trace import Phase, RequestError, RequestTrace, Window
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.live import ChatRequest, LiveTrace, user

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.workload import Cell, OpenLoop
    from ddtree_tune.node.feed import Feed

_TICK_S = 0.01
"""Between two looks at the cell, each a sample of the loop's lag."""
_LONGEST = 4
"""A window that waits for requests stays open this many times its length, at most."""
_SPARE = 1.3
"""Prompts cut for the window, over those that the warm-up's pace asks for."""
_PAUSE_S = 0.05
"""After a failure, so that a server that refuses at once is not hammered."""
_HOPELESS = 8
"""Failures in a row, beside two per slot, after which the cell is given up."""
_MOST_IN_FLIGHT = 512
"""Of an open loop; beyond it the client would measure itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a cell waits."""

    stall_s: float = 30.0
    """No token from any request for so long is a hang."""
    request_s: float = 1800.0
    """Most time for one request."""
    drain_s: float = 60.0
    """Most time for the requests that are in flight when the window closes; then they are cancelled."""


@dataclass
class LoadRun:
    """One repeat of one cell while it runs."""

    endpoint: Endpoint
    cell: Cell
    feed: Feed
    limits: Limits
    stack: contextlib.AsyncExitStack = field(init=False)
    group: asyncio.TaskGroup = field(init=False)
    traces: list[RequestTrace] = field(default_factory=list)
    live: dict[str, LiveTrace] = field(default_factory=dict)
    lag_ns: list[int] = field(default_factory=list)
    opened_ns: int | None = None
    closed_ns: int | None = None
    progress_ns: int = field(default_factory=time.perf_counter_ns)
    sent: int = 0
    failed_in_a_row: int = 0
    refused_in_a_row: int = 0
    warm_slots: int = 0
    warm: asyncio.Event = field(default_factory=asyncio.Event)
    """Every slot has done its warm-up."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """A request has ended well."""
    prepared: asyncio.Event = field(default_factory=asyncio.Event)
    """All of that, and the prompts of the window are cut."""

    @property
    def window(self) -> Window | None:
        """The window, once it is closed."""
        if self.opened_ns is None or self.closed_ns is None:
            return None
        return Window(self.opened_ns, self.closed_ns)

    async def closed(self, users: int) -> None:
        """Hold ``users`` requests in flight until the window closes, then drain."""
        waves = self.cell.warmup_waves
        await self.feed.ahead(Phase.WARMUP, users * waves)
        self.progress_ns = time.perf_counter_ns()
        slots = [self.group.create_task(self._slot(number, users)) for number in range(users)]
        prepare = self.group.create_task(self._prepare(users))
        await self._watch(users, self.prepared.is_set)
        prepare.cancel()
        await self._drain(slots)

    async def open(self, arrival: OpenLoop, rng: np.random.Generator) -> None:
        """Send at random times until the window closes, then drain."""
        await self.feed.ahead(Phase.WARMUP, 1)
        await self.feed.ahead(Phase.WINDOW, math.ceil(_SPARE * arrival.rate_rps * self.cell.window_s) + 1)
        self.progress_ns = time.perf_counter_ns()
        tasks: set[asyncio.Task[None]] = set()
        arrivals = self.group.create_task(self._arrive(arrival.rate_rps, rng, tasks))
        generation: list[int] = []

        def turned_over() -> bool:
            """Whether all requests have ended that were sent before the first one did."""
            if self.traces and not generation:
                generation.append(self.sent)
            return bool(generation) and len(self.traces) >= generation[0]

        await self._watch(1, turned_over)
        arrivals.cancel()
        await self._drain(list(tasks))

    async def _slot(self, number: int, users: int) -> None:
        """One of the requests in flight, over and over."""
        client = await self._client()
        for wave in range(self.cell.warmup_waves, 0, -1):
            share = (number + 1) / users if wave == 1 else 1.0
            await self._ask(client, Phase.WARMUP, math.ceil(self.cell.output_tokens * share))
        self.warm_slots += 1
        if self.warm_slots == users:
            self.warm.set()
        while self.closed_ns is None:
            await self._ask(client, Phase.WINDOW if self.prepared.is_set() else Phase.WARMUP, self.cell.output_tokens)

    async def _prepare(self, users: int) -> None:
        """Cut the window's prompts while the warm-up runs; how many, the warm-up's pace says."""
        least = self.cell.min_requests
        await self.feed.ahead(Phase.WINDOW, users + min(least, users * _LONGEST))
        await self.warm.wait()
        await self.answered.wait()
        full_s = [
            (trace.chunk_ns[0] - trace.sent_ns) / 1e9
            + (trace.end_ns - trace.chunk_ns[0]) / 1e9 * self.cell.output_tokens / (trace.completion_tokens or 1)
            for trace in self.traces
            if trace.ok
        ]
        pace = users / max(float(np.mean(full_s)), 1e-3)
        wanted = max(_SPARE * pace * self.cell.window_s, min(least, pace * _LONGEST * self.cell.window_s))
        await self.feed.ahead(Phase.WINDOW, users + math.ceil(wanted))
        self.prepared.set()

    async def _arrive(self, rate_rps: float, rng: np.random.Generator, tasks: set[asyncio.Task[None]]) -> None:
        """Poisson arrivals on the clock, however long replies take."""
        loop = asyncio.get_running_loop()
        free: list[EngineClient] = []
        due = loop.time()
        while True:
            due += float(rng.exponential(1 / rate_rps))
            await asyncio.sleep(max(0.0, due - loop.time()))
            if len(self.live) >= _MOST_IN_FLIGHT:
                raise LoadError(
                    f"an open loop must stay below {_MOST_IN_FLIGHT} requests in flight, but got as many at "
                    f"{rate_rps:g} requests/s; the server cannot carry that rate, lower it"
                )
            task = self.group.create_task(self._visit(free))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _visit(self, free: list[EngineClient]) -> None:
        client = free.pop() if free else await self._client()
        phase = Phase.WARMUP if self.opened_ns is None else Phase.WINDOW
        await self._ask(client, phase, self.cell.output_tokens)
        free.append(client)

    async def _client(self) -> EngineClient:
        """A client of its own for each stream."""
        client = EngineClient(
            self.endpoint,
            timeout_s=self.limits.request_s,
            stall_s=self.limits.stall_s,
        )
        return await self.stack.enter_async_context(client)

    async def _ask(self, client: EngineClient, phase: Phase, max_tokens: int) -> None:
        """Send one request and keep its trace, whatever becomes of it."""
        prompt = await self.feed.take(phase)
        request = ChatRequest(user(prompt.text), max_tokens=max_tokens, ignore_eos=True)
        request_id = f"{self.cell.cell_id}-{self.sent:05d}"
        self.sent += 1
        live = LiveTrace(request_id, phase, prompt.family, request.sha)
        self.live[request_id] = live
        try:
            trace = await client.chat(request, request_id=request_id, phase=phase, family=prompt.family, live=live)
        except asyncio.CancelledError:
            self.traces.append(live.freeze(RequestError.CANCELLED, "in flight when the window had closed"))
            raise
        finally:
            del self.live[request_id]
        self.traces.append(trace)
        if trace.chunk_ns:
            self.progress_ns = max(self.progress_ns, trace.chunk_ns[-1])
        if trace.ok:
            self.answered.set()
        self.failed_in_a_row = 0 if trace.ok else self.failed_in_a_row + 1
        self.refused_in_a_row = self.refused_in_a_row + 1 if trace.error is RequestError.CONNECT else 0
        if not trace.ok:
            await asyncio.sleep(_PAUSE_S)

    async def _watch(self, users: int, ready: Callable[[], bool]) -> None:
        """Open and close the window; give up on a server that hangs or is gone."""
        loop = asyncio.get_running_loop()
        while self.closed_ns is None:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            late_s = max(0.0, loop.time() - due)
            if self.opened_ns is not None:
                self.lag_ns.append(round(late_s * 1e9))
            now = time.perf_counter_ns()
            for live in self.live.values():
                if live.chunk_ns:
                    self.progress_ns = max(self.progress_ns, live.chunk_ns[-1])
            silent_s = (now - self.progress_ns) / 1e9
            if silent_s > self.limits.stall_s > 2 * late_s:  # a loop held up for so long has not looked yet
                raise EngineError(
                    f"a token must come within {self.limits.stall_s:g} s, but got none from {len(self.live)} requests "
                    f"in flight in {self.cell.cell_id}; see the server's log",
                    FailureClass.HANG,
                )
            hopeless = self.failed_in_a_row >= 2 * users + _HOPELESS or self.refused_in_a_row >= users
            if hopeless or (self.opened_ns is not None and self._enough(users, now)):
                self.closed_ns = now
            elif self.opened_ns is None and ready():
                self.opened_ns = now

    def _enough(self, users: int, now: int) -> bool:
        """Whether the window has seen what the cell asks and one turnover of every slot."""
        opened = self.opened_ns or now
        open_s = (now - opened) / 1e9
        if open_s < self.cell.window_s:
            return False
        inside = [trace for trace in self.traces if trace.ok and trace.end_ns >= opened]
        sent_inside = sum(trace.sent_ns >= opened for trace in inside)
        seen = len(inside) >= users and sent_inside >= self.cell.min_requests
        return seen or open_s >= _LONGEST * self.cell.window_s

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> None:
        """Let the requests in flight end, then cancel those that do not."""
        if tasks:
            await asyncio.wait(tasks, timeout=self.limits.drain_s)
        for task in tasks:
            task.cancel()
