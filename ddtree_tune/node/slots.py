"""The loops that send one load process's share of a cell's requests.

They know when to begin and to end from the orders of a lead, which hears at every tick what they
have seen (`watch`).
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.errors import EngineError, LoadError
from ddtree_tune.core.trace import Phase, RequestError, RequestTrace, Window
from ddtree_tune.core.workload import Ends, OpenLoop
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.live import ChatRequest, LiveTrace, user
from ddtree_tune.node.watch import LONGEST, TICK_S, Orders, Share, Tally

if TYPE_CHECKING:
    import contextlib

    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.feed import Feed
    from ddtree_tune.node.prompts import Prompt
    from ddtree_tune.node.watch import Lead, Limits

_SPARE = 1.3
"""Prompts cut for the window, over those that the warm-up's pace asks for."""
_PAUSE_S = 0.05
"""After a failure, so that a server that refuses at once is not hammered."""
_MOST_IN_FLIGHT = 512
"""Of one process in an open loop; beyond it the client would measure itself."""


@dataclass
class LoadRun:
    """One load process's share of one repeat of one cell while it runs."""

    endpoint: Endpoint
    cell: Cell
    feed: Feed
    limits: Limits
    lead: Lead
    share: Share
    stack: contextlib.AsyncExitStack = field(init=False)
    group: asyncio.TaskGroup = field(init=False)
    orders: Orders = field(default_factory=Orders)
    traces: list[RequestTrace] = field(default_factory=list)
    live: dict[str, LiveTrace] = field(default_factory=dict)
    progress_ns: int = 0
    sent: int = 0
    ended: int = 0
    sent_and_ended: int = 0
    failed_in_a_row: int = 0
    refused_in_a_row: int = 0
    warm_slots: int = 0
    generation: int = 0
    """Requests of an open loop that were sent before the first one ended: once all have, it is warm."""
    at_the_line: bool = False
    ready: bool = False
    broken: EngineError | None = None
    """Why no more prompts can be cut."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    warm: asyncio.Event = field(default_factory=asyncio.Event)
    """Every slot has done its warm-up."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """A request has ended well."""

    @property
    def window(self) -> Window | None:
        """The window, once its ends are decided; None if it never opened."""
        opened, closed = self.orders.open_ns, self.orders.close_ns
        return None if opened is None or closed is None else Window(opened, closed)

    async def closed(self, users: int) -> None:
        """Hold this share of ``users`` requests in flight until the window closes, then drain."""
        follow = self.group.create_task(self._follow())
        numbers = range(self.share.number, users, self.share.of)
        await self.feed.ahead(Phase.WARMUP, len(numbers) * self.cell.warmup_waves)
        await self._begin()
        slots = [self.group.create_task(self._slot(number, users, len(numbers))) for number in numbers]
        prepare = self.group.create_task(self._prepare(len(numbers), users))
        await self._end()
        prepare.cancel()
        await self._drain(slots)
        follow.cancel()

    async def open(self, arrival: OpenLoop, rng: np.random.Generator) -> None:
        """Send this share of the random arrivals until the window closes, then drain."""
        follow = self.group.create_task(self._follow())
        await self.feed.ahead(Phase.WARMUP, 1)
        inside = arrival.rate_rps * self.cell.window_s / self.share.of
        await self.feed.ahead(Phase.WINDOW, math.ceil(_SPARE * inside) + 1)
        await self._begin()
        tasks: set[asyncio.Task[None]] = set()
        arrivals = self.group.create_task(self._arrive(arrival.rate_rps, rng, tasks))
        await self._end()
        arrivals.cancel()
        await self._drain(list(tasks))
        follow.cancel()

    async def _begin(self) -> None:
        self.at_the_line = True
        await self.begun.wait()
        await _until(self.orders.begin_ns or 0)

    async def _end(self) -> None:
        await self.closing.wait()
        await _until(self.orders.close_ns or 0)

    async def _follow(self) -> None:
        """Tell the lead what has been seen, and take its orders, at every tick."""
        while True:
            for live in self.live.values():
                if live.chunk_ns:
                    self.progress_ns = max(self.progress_ns, live.chunk_ns[-1])
            self.orders = self.lead(self._tally())
            if self.orders.begin_ns is not None:
                self.begun.set()
            if self.orders.close_ns is not None:
                self.closing.set()
            await asyncio.sleep(TICK_S)

    def _tally(self) -> Tally:
        return Tally(
            at_the_line=self.at_the_line,
            ready=self.ready,
            broken=self.broken is not None,
            in_flight=len(self.live),
            progress_ns=self.progress_ns,
            ended=self.ended,
            sent_and_ended=self.sent_and_ended,
            failed_in_a_row=self.failed_in_a_row,
            refused_in_a_row=self.refused_in_a_row,
        )

    async def _slot(self, number: int, users: int, mine: int) -> None:
        """One of the requests in flight, over and over."""
        client = await self._client()
        for wave in range(self.cell.warmup_waves, 0, -1):
            share = (number + 1) / users if wave == 1 else 1.0
            await self._ask(client, math.ceil(self.cell.output_tokens * share))
        self.warm_slots += 1
        if self.warm_slots == mine:
            self.warm.set()
        while self.broken is None and not self._over():
            await self._ask(client, self.cell.output_tokens)

    def _over(self) -> bool:
        return self.orders.close_ns is not None and time.perf_counter_ns() >= self.orders.close_ns

    async def _prepare(self, mine: int, users: int) -> None:
        """Cut the window's prompts while the warm-up runs; how many, the warm-up's pace says."""
        least = math.ceil(self.cell.min_requests * mine / users)
        try:
            await self.feed.ahead(Phase.WINDOW, mine + min(least, mine * LONGEST))
            await self.warm.wait()
            await self.answered.wait()
            pace = mine / max(float(np.mean([self._full_s(trace) for trace in self.traces if trace.ok])), 1e-3)
            wanted = max(_SPARE * pace * self.cell.window_s, min(least, pace * LONGEST * self.cell.window_s))
            await self.feed.ahead(Phase.WINDOW, mine + math.ceil(wanted))
        except EngineError as error:
            self.broken = error
        else:
            self.ready = True

    def _full_s(self, trace: RequestTrace) -> float:
        """How long a request of the warm-up would have taken at full length, where that is known."""
        first_s, rest_s = (trace.chunk_ns[0] - trace.sent_ns) / 1e9, (trace.end_ns - trace.chunk_ns[0]) / 1e9
        fixed = self.cell.ends is Ends.FIXED
        return first_s + rest_s * (self.cell.output_tokens / (trace.completion_tokens or 1) if fixed else 1)

    async def _arrive(self, rate_rps: float, rng: np.random.Generator, tasks: set[asyncio.Task[None]]) -> None:
        """Poisson arrivals on the clock, however long replies take; the same ones in every process."""
        free: list[EngineClient] = []
        due_ns, number = float(self.orders.begin_ns or 0), 0
        while True:
            due_ns += float(rng.exponential(1e9 / rate_rps))
            number += 1
            if (number - 1) % self.share.of != self.share.number:
                continue
            await _until(round(due_ns))
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
        await self._ask(client, self.cell.output_tokens)
        free.append(client)

    async def _client(self) -> EngineClient:
        """A client of its own for each stream."""
        limits = self.limits
        client = EngineClient(self.endpoint, timeout_s=limits.request_s, stall_s=limits.stall_s)
        return await self.stack.enter_async_context(client)

    async def _ask(self, client: EngineClient, max_tokens: int) -> None:
        """Send one request and keep its trace, whatever becomes of it."""
        phase = Phase.WARMUP if self.orders.open_ns is None else Phase.WINDOW
        try:
            prompt = await self.feed.take(phase)
        except EngineError as error:
            self.broken = error
            return
        request = self._request(prompt, max_tokens)
        request_id = f"{self.cell.cell_id}-{self.sent * self.share.of + self.share.number:05d}"
        self.sent += 1
        if not self.live and not self.failed_in_a_row:
            self.progress_ns = time.perf_counter_ns()  # between the arrivals of an open loop nobody owes a token
        live = LiveTrace(request_id, phase, prompt.family, request.sha)
        self.live[request_id] = live
        try:
            trace = await client.chat(request, request_id=request_id, phase=phase, family=prompt.family, live=live)
        except asyncio.CancelledError:
            self.traces.append(live.freeze(RequestError.CANCELLED, "in flight when the window had closed"))
            raise
        finally:
            del self.live[request_id]
        self._note(trace)
        if not trace.ok:
            await asyncio.sleep(_PAUSE_S)

    def _request(self, prompt: Prompt, max_tokens: int) -> ChatRequest:
        """What is asked; a sampled reply has the prompt's own seed, the same for every arm."""
        request = ChatRequest(
            user(prompt.text),
            max_tokens=max_tokens,
            temperature=self.cell.temperature,
            top_p=self.cell.top_p,
            ignore_eos=self.cell.ends is Ends.FIXED,
        )
        return replace(request, seed=int(request.sha[:8], 16) >> 1) if self.cell.temperature else request

    def _note(self, trace: RequestTrace) -> None:
        self.traces.append(trace)
        if trace.chunk_ns:
            self.progress_ns = max(self.progress_ns, trace.chunk_ns[-1])
        opened_ns = self.orders.open_ns
        if trace.ok:
            self.answered.set()
            if opened_ns is not None and trace.end_ns >= opened_ns:
                self.ended += 1
                self.sent_and_ended += trace.sent_ns >= opened_ns
        if isinstance(self.cell.arrival, OpenLoop):
            self.generation = self.generation or self.sent
            self.ready = len(self.traces) >= self.generation
        self.failed_in_a_row = 0 if trace.ok else self.failed_in_a_row + 1
        self.refused_in_a_row = self.refused_in_a_row + 1 if trace.error is RequestError.CONNECT else 0

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> None:
        """Let the requests in flight end, then cancel those that do not."""
        if tasks:
            await asyncio.wait(tasks, timeout=self.limits.drain_s)
        for task in tasks:
            task.cancel()


async def _until(at_ns: int) -> None:
    """Sleep until an instant of ``perf_counter_ns``."""
    await asyncio.sleep(max(0, at_ns - time.perf_counter_ns()) / 1e9)
