"""The fake's scheduler: one batch, one step at a time, as many requests at once as may run.

A step commits one token without speculation, and else a few that average ``accept_len``. Greedy text
does not depend on that. What was done is kept for tests, request by request.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import os
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.sglang import log
from tests.sglang.arguments import context_length, graph_sizes
from tests.sglang.text import STOP, answer, codec, more

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.sglang.arguments import Resolved

TOKENS = 10_922_059
"""Room for tokens, as the real one found on an H200."""


@dataclass
class Generation:
    """One request on its way."""

    prompt_ids: list[int]
    ids: list[int]
    pieces: list[str]
    """Text of each token; the one that ends the answer has none."""
    finish: dict[str, Any]
    reasoning_tokens: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    cached: int = 0
    sent: int = 0
    verify_steps: int = 0
    histogram: list[int] = field(default_factory=list)
    """Index: drafts that a step accepted; value: steps."""
    started: float = field(default_factory=time.perf_counter)
    news: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    is_probe: bool = False
    """Health check or warm-up: counted nowhere."""
    is_dropped: bool = False
    """Nobody waits for it any more."""

    @property
    def done(self) -> bool:
        return self.sent >= len(self.ids)

    def text(self, count: int) -> str:
        """What the first so many tokens say."""
        return "".join(self.pieces[:count])


class RefusedError(ValueError):
    """A request that is answered with HTTP 400."""


class Engine:
    """Runs generations; ``run`` is its loop."""

    def __init__(self, resolved: Resolved, die: Callable[[], None]):
        self.resolved = resolved
        self.scenario = resolved.scenario
        self.codec = codec(resolved.model_path)
        self.context = context_length(resolved)
        self.truth: list[dict[str, Any]] = []
        self.ready_at: float | None = None
        self.waiting: deque[Generation] = deque()
        self.running: list[Generation] = []
        self.generated = self.verify_calls = self.prompted = 0
        self.logged_tokens = self.logged_calls = 0
        """Over the log intervals that are complete; flushing the cache zeroes them."""
        self.throughput = 0.0
        self.is_stuck = False
        """Whether the scheduler stands still; what it holds is never over."""
        self._largest_graph = graph_sizes(resolved)[-1] if resolved.graphs else 0
        self._die = die
        self._wake = asyncio.Event()
        self._cache: list[tuple[int, ...]] = []
        """Prompts in order: what shares most with a new one is beside it."""
        self._steps = self._since_tokens = self._since_calls = self._since_generated = 0
        self._since = time.perf_counter()
        self._lives = self.scenario.die_after_requests
        self._until_hang = self.scenario.hang_after_requests

    def make(
        self, prompt: str, *, wanted: int, ignore_eos: bool, salt: str, thinks: bool, is_probe: bool = False
    ) -> Generation:
        """A generation, whose whole answer is known from the start.

        Raises:
            RefusedError: the prompt does not fit.
        """
        prompt_ids, _ = self.codec.pieces(prompt)
        if len(prompt_ids) >= self.context:
            raise RefusedError(
                f"The input ({len(prompt_ids)} tokens) is longer than the model's context length "
                f"({self.context} tokens)."
            )
        wanted = min(wanted, self.context - len(prompt_ids))
        text = answer(prompt, self.scenario.text, salt=salt, thinks=thinks)
        ids, pieces = self.codec.pieces(text)
        is_endless = ignore_eos or self.scenario.text == "nan"
        if not is_endless:
            ids, pieces = [*ids, STOP], [*pieces, ""]
        while is_endless and len(ids) < wanted:
            text += more(text)
            ids, pieces = self.codec.pieces(text)
        stopped = not is_endless and len(ids) <= wanted
        finish = {"type": "stop", "matched": STOP} if stopped else {"type": "length", "length": wanted}
        ids, pieces = ids[:wanted], pieces[:wanted]
        said = "".join(pieces)
        thought = said.partition("</think>")[0] if said.startswith("<think>") else ""
        reasoning = len(self.codec.pieces(thought)[0]) if self.resolved.reasoning_parser else 0
        return Generation(prompt_ids, ids, pieces, finish, reasoning, is_probe=is_probe)

    async def submit(self, generation: Generation, body: dict[str, Any]) -> AsyncIterator[int]:
        """Queue a generation; yields how many tokens are out after each step."""
        record = {"id": generation.id, "body": body, "prompt_tokens": len(generation.prompt_ids)}
        record |= {"received_ns": time.perf_counter_ns(), "sent_ns": [], "tokens": [], "end_ns": None}
        if not generation.is_probe:
            self.truth.append(record)
        self.waiting.append(generation)
        self._wake.set()
        try:
            while not generation.done or not generation.news.empty():
                sent = await generation.news.get()
                record["sent_ns"].append(time.perf_counter_ns())
                record["tokens"].append(sent)
                yield sent
            record |= {"end_ns": time.perf_counter_ns(), "cached_tokens": generation.cached}
            record |= {"verify_steps": generation.verify_steps, "histogram": generation.histogram}
        finally:
            self._forget(generation)

    def flush(self) -> bool:
        """Empty the prefix cache and zero the counters, unless something runs."""
        if self.waiting or self.running:
            log.say(
                f"Cache not flushed because there are pending requests. #queue-req: {len(self.waiting)}, "
                f"#running-req: {len(self.running)}"
            )
            return False
        self._cache.clear()
        self.logged_tokens = self.logged_calls = 0
        log.say("Cache flushed successfully!")
        return True

    async def run(self) -> None:
        """Serve for ever."""
        while True:
            while not (self.waiting or self.running):
                self._wake.clear()
                await self._wake.wait()
            if self.ready_at is not None:
                await asyncio.sleep(self.ready_at + self.scenario.mute_s - time.perf_counter())
            await self._admit()
            if self.is_stuck:
                await asyncio.Event().wait()
            if self.running:
                await asyncio.sleep(self.scenario.step_s)
                self._step()

    async def _admit(self) -> None:
        new: list[Generation] = []
        while self.waiting and len(self.running) + len(new) < self.resolved.running_cap:
            one = self.waiting.popleft()
            if self._until_hang is not None and not one.is_probe:
                if self._until_hang == 0:
                    self.is_stuck = True
                    await asyncio.Event().wait()
                self._until_hang -= 1
            one.cached = self._remember(one.prompt_ids)
            new.append(one)
        if not new:
            return
        fresh = sum(len(one.prompt_ids) - one.cached for one in new)
        log.say(
            f"Prefill batch, #new-seq: {len(new)}, #new-token: {fresh}, #cached-token: {sum(one.cached for one in new)}"
            f", token usage: 0.00, #running-req: {len(self.running)}, #queue-req: {len(self.waiting)}, "
            f"#pending-token: 0, cuda graph: {self.resolved.graphs}, input throughput (token/s): 80.87"
        )
        await asyncio.sleep(self.scenario.prefill_s)
        self.running += new
        for one in [one for one in new if not self._dropped(one)]:
            self.prompted += len(one.prompt_ids)
            self._commit(one, 1)

    def _step(self) -> None:
        batch = list(self.running)
        for one in batch:
            if self.resolved.speculates:
                one.verify_steps += 1
                done = one.verify_steps
                count = int(done * self.resolved.accept_len) - int((done - 1) * self.resolved.accept_len)
                one.histogram += [0] * (count - len(one.histogram))
                one.histogram[count - 1] += 1
                self.verify_calls += not one.is_probe
                self._since_calls += 1
                self._since_tokens += count
            else:
                count = 1
            self._commit(one, count)
        self._steps += 1
        if (path := os.environ.get("DDTREE_TUNE_STEP_TIMES")) and self.resolved.speculative_algorithm == "DDTREE":
            step = {"batch": len(batch), "graphs": len(batch) <= self._largest_graph, "draft_ms": 0.3, "tree_ms": 0.1}
            step |= {"verify_ms": 0.5, "commit_ms": 0.1}
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(step) + "\n")
        if self._steps % self.resolved.decode_log_interval == 0:
            self._log(len(batch))

    def _commit(self, one: Generation, count: int) -> None:
        before, one.sent = one.sent, min(len(one.ids), one.sent + count)
        self._since_generated += one.sent - before
        one.news.put_nowait(one.sent)
        if not one.is_probe:
            self.generated += one.sent - before
            if before == 0 and self._kills(one):
                self.is_stuck = True  # a scheduler that is dying generates no more
                asyncio.get_running_loop().call_later(self.scenario.step_s, self._die)
        if one.done:
            self.running.remove(one)

    def _kills(self, one: Generation) -> bool:
        """Whether this generation, whose first chunk is out, is the one to die with."""
        beyond = self.scenario.die_beyond_tokens
        if self._lives is not None:
            self._lives -= 1
        return (self._lives or 0) < 0 or (beyond is not None and len(one.prompt_ids) > beyond)

    def _log(self, batch: int) -> None:
        now = time.perf_counter()
        self.throughput = self._since_generated / (now - self._since)
        tokens = sum(len(one.prompt_ids) + one.sent for one in self.running)
        speculation = ""
        if self.resolved.speculates:
            length = self._since_tokens / self._since_calls
            rate = (length - 1) / (self.resolved.speculative_num_draft_tokens - 1)
            speculation = f"accept len: {length:.2f}, accept rate: {rate:.2f}, "
            self.logged_tokens += self._since_tokens
            self.logged_calls += self._since_calls
        log.say(
            f"Decode batch, #running-req: {batch}, #token: {tokens}, token usage: {tokens / TOKENS:.2f}, {speculation}"
            f"cuda graph: {batch <= self._largest_graph}, gen throughput (token/s): {self.throughput:.2f}, "
            f"#queue-req: {len(self.waiting)}"
        )
        self._since, self._since_tokens, self._since_calls, self._since_generated = now, 0, 0, 0

    def _remember(self, prompt_ids: list[int]) -> int:
        """Keep a prompt in the prefix cache; returns how much of it was there. One token is always computed."""
        if self.resolved.disable_radix_cache:
            return 0
        prompt = tuple(prompt_ids)
        at = bisect.bisect_left(self._cache, prompt)
        beside = self._cache[max(0, at - 1) : at + 1]
        self._cache.insert(at, prompt)
        return min(max((_shared(prompt, one) for one in beside), default=0), len(prompt) - 1)

    def _dropped(self, one: Generation) -> bool:
        """Take out a generation whose client went while it was prefilled."""
        if one.is_dropped:
            self.running.remove(one)
        return one.is_dropped

    def _forget(self, generation: Generation) -> None:
        """Take out a generation whose client has gone."""
        generation.is_dropped = True
        if generation in self.waiting:
            self.waiting.remove(generation)
        if generation in self.running:
            self.running.remove(generation)


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Length of the common beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
