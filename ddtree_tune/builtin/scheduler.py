"""Continuous batching: who waits, who reads a prompt, who decodes, and when a reply ends.

First come, first served. Every tick reads at most one chunk of waiting prompts and then advances
every decoding sequence by one step, so a long prompt delays the others by a chunk at a time.
Knows tokens only; text, stop strings and clients are the server's.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING

from ddtree_tune.builtin.decoder import Part, Stream
from ddtree_tune.builtin.sampling import Sampler, Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddtree_tune.builtin.decoder import Commit, Decoder

DECODE_LOG_STEPS = 40
"""Decoding steps between two log lines, as in SGLang."""

log = logging.getLogger(__name__)


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    """The model ended it."""
    LENGTH = "length"
    """It reached its token limit."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request, in tokens."""

    request_id: str
    prompt: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one pass added to one reply."""

    request_id: str
    tokens: tuple[int, ...]
    accepted: int | None
    """Drafted tokens that the verify step accepted; None if the pass drafted nothing."""
    finish: Finish | None


@dataclass(slots=True)
class Counters:
    """What the engine did since it started; acceptance since the last flush."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    requests: int = 0
    verify_steps: int = 0
    flushed_verify_steps: int = 0
    """Verify steps, one per sequence and pass, since the last flush."""
    flushed_committed: int = 0
    """Tokens they committed, the target's own included."""
    throughput_tps: float = 0.0
    """Generated tokens per second over the last logged steps."""

    @property
    def accept_len(self) -> float | None:
        """Tokens per verify step since the last flush; None before the first."""
        return self.flushed_committed / self.flushed_verify_steps if self.flushed_verify_steps else None


@dataclass(slots=True)
class _Running:
    """One request in its slot."""

    job: Job
    stream: Stream
    read: int = 0
    """Prompt tokens read."""
    generated: int = 0


class Scheduler:
    """Owns the decoder's slots."""

    def __init__(
        self,
        decoder: Decoder,
        stop_ids: frozenset[int],
        *,
        slots: int,
        chunk: int,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.counters = Counters()
        self._decoder = decoder
        self._stop_ids = stop_ids
        self._chunk = chunk
        self._clock = clock
        self._free = list(range(slots - 1, -1, -1))
        self._waiting: deque[Job] = deque()
        self._running: list[_Running] = []
        self._steps = 0
        self._window_s = clock()
        self._window_tokens = self._window_verified = self._window_committed = 0

    @property
    def running(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._running and not self._waiting

    def submit(self, job: Job) -> None:
        """Queue a request; its prompt and reply fit the decoder's length."""
        self.counters.requests += 1
        self._waiting.append(job)

    def abort(self, request_id: str) -> None:
        """Forget a request; nothing happens if it has ended."""
        self._waiting = deque(job for job in self._waiting if job.request_id != request_id)
        for running in self._running:
            if running.job.request_id == request_id:
                self._release(running)
                return

    def forget(self) -> None:
        """Start all counters anew."""
        self.counters = Counters()

    def forget_acceptance(self) -> None:
        """Start the acceptance counters anew."""
        self.counters.flushed_verify_steps = self.counters.flushed_committed = 0

    def tick(self) -> list[Delivery]:
        """Read one chunk of prompts, then decode one step."""
        if not self._running:
            self._open_window()
        self._admit()
        decoding = [running for running in self._running if running.stream.anchor >= 0]
        return self._read() + (self._decode(decoding) if decoding else [])

    def _admit(self) -> None:
        while self._free and self._waiting:
            job = self._waiting.popleft()
            sampling = job.sampling
            stop_ids = frozenset() if sampling.ignore_eos else self._stop_ids | sampling.stop_ids
            self._running.append(_Running(job, Stream(self._free.pop(), Sampler(sampling), stop_ids)))

    def _read(self) -> list[Delivery]:
        """Give the chunk to those who came first."""
        left = self._chunk
        parts: list[Part] = []
        ended: list[_Running] = []
        for running in self._running:
            unread = len(running.job.prompt) - running.read
            if not unread or not left:
                continue
            count = min(unread, left)
            tokens = running.job.prompt[running.read : running.read + count]
            parts.append(Part(running.stream, tokens, last=count == unread))
            running.read += count
            left -= count
            if count == unread:
                ended.append(running)
        if not parts:
            return []
        self._decoder.read(parts)
        self.counters.prompt_tokens += self._chunk - left
        log.info(
            "Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: 0, #running-req: %d, #queue-req: %d",
            len(ended), self._chunk - left, self.running, self.waiting,
        )  # fmt: skip
        return [self._deliver(running, (running.stream.anchor,), None) for running in ended]

    def _decode(self, decoding: Sequence[_Running]) -> list[Delivery]:
        commits = self._decoder.step([running.stream for running in decoding])
        deliveries = []
        for running, commit in zip(decoding, commits, strict=True):
            self._count(commit)
            deliveries.append(self._deliver(running, tuple(commit.tokens), commit.accepted))
        self._steps += 1
        if self._steps % DECODE_LOG_STEPS == 0:
            self._log_decode(len(decoding))
        return deliveries

    def _deliver(self, running: _Running, tokens: tuple[int, ...], accepted: int | None) -> Delivery:
        """Cut the tokens at the request's limit and end it where it ends."""
        tokens = tokens[: running.job.sampling.max_tokens - running.generated]
        running.generated += len(tokens)
        self.counters.generation_tokens += len(tokens)
        self._window_tokens += len(tokens)
        finish = None
        if tokens[-1] in running.stream.stop_ids:
            finish = Finish.STOP
        elif running.generated == running.job.sampling.max_tokens:
            finish = Finish.LENGTH
        if finish is not None:
            self._release(running)
        return Delivery(running.job.request_id, tokens, accepted, finish)

    def _release(self, running: _Running) -> None:
        self._running.remove(running)
        self._free.append(running.stream.slot)

    def _count(self, commit: Commit) -> None:
        if commit.accepted is None:
            return
        counters = self.counters
        counters.verify_steps += 1
        counters.flushed_verify_steps += 1
        counters.flushed_committed += commit.accepted + 1
        self._window_verified += 1
        self._window_committed += commit.accepted + 1

    def _open_window(self) -> None:
        self._window_s = self._clock()
        self._window_tokens = self._window_verified = self._window_committed = 0

    def _log_decode(self, decoding: int) -> None:
        self.counters.throughput_tps = self._window_tokens / max(self._clock() - self._window_s, 1e-9)
        accept = f" accept len: {self._window_committed / self._window_verified:.2f}," if self._window_verified else ""
        log.info(
            "Decode batch, #running-req: %d, #token: %d,%s gen throughput (token/s): %.2f, #queue-req: %d",
            decoding, sum(running.stream.length for running in self._running), accept,
            self.counters.throughput_tps, self.waiting,
        )  # fmt: skip
        self._open_window()
