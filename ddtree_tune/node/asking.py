"""Asks a server for replies to problems, with as many requests in flight as it serves.

The size of a batch changes a model's numerics, so it is kept to the last reply: a slot that has
nothing left to ask repeats some problem until all replies are there, and what comes is thrown away.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from itertools import accumulate, cycle
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.coding import Chunks, Problem, Reply
from ddtree_tune.core.judge import Answered, is_cut, submit
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.client import ChatRequest, EngineClient, user
from ddtree_tune.node.live import LiveTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddtree_tune.core.coding_spec import CodingSpec
    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.trace import RequestTrace

REPLY_S = 3600.0
"""Most time for one reply; a stall ends it much sooner."""


@dataclass(frozen=True, slots=True)
class Question:
    """One reply to ask for."""

    problem: Problem
    sample: int
    """Which of several replies to the problem."""
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom to ask, and how."""

    endpoint: Endpoint
    coding: CodingSpec
    seed: int
    """Of the sweep; what a reply is sampled with follows from it."""
    stall_s: float
    """Most time without a byte of a reply."""
    extra: tuple[tuple[str, Any], ...] = ()
    """Further fields of the request body, as (name, value)."""

    def request(self, question: Question) -> ChatRequest:
        """The request for one reply. Greedy decoding draws nothing and gets no seed."""
        coding = self.coding
        return ChatRequest(
            user(question.problem.prompt),
            max_tokens=question.max_tokens,
            temperature=coding.temperature,
            top_p=coding.top_p,
            seed=sample_seed(self.seed, question.problem.id, question.sample) if coding.temperature > 0 else None,
            extra=self.extra,
        )


def sample_seed(seed: int, problem_id: str, sample: int) -> int:
    """The seed of one reply, the same for every setting: 31 bits of a sha256."""
    digest = hashlib.sha256(f"{seed}\0{problem_id}\0{sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


async def ask_all(ask: Asking, questions: Sequence[Question], concurrency: int) -> list[Answered]:
    """Keep ``concurrency`` requests in flight until every question has its reply.

    Args:
        ask: whom to ask, and how.
        questions: in the order of asking.
        concurrency: requests in flight.

    Returns:
        One reply per question, in order.
    """
    if not questions:
        return []
    queue, fillers = iter(enumerate(questions)), cycle(questions)
    replies: dict[int, Answered] = {}
    complete = asyncio.Event()

    async def slot() -> None:
        async with EngineClient(ask.endpoint, timeout_s=REPLY_S, stall_s=ask.stall_s) as client:
            for number, question in queue:
                replies[number] = await _ask(client, ask, question, concurrency)
            while len(replies) < len(questions):
                filler = await _ask(client, ask, next(fillers), concurrency)
                if filler.reply.error is not None:
                    return
        complete.set()

    async with asyncio.TaskGroup() as group:
        slots = [group.create_task(slot()) for _ in range(concurrency)]
        await complete.wait()
        for one in slots:
            one.cancel()
    return [replies[number] for number in range(len(questions))]


async def _ask(client: EngineClient, ask: Asking, question: Question, concurrency: int) -> Answered:
    """One reply, asked for again with twice the tokens while its program is not complete."""
    problem, most = question.problem, ask.coding.retry_max_tokens
    while True:
        request = ask.request(question)
        live = LiveTrace(
            f"coding-{problem.id}-{question.sample}-{question.max_tokens}",
            Phase.WINDOW,
            problem.kind or "coding",
            request.sha,
        )
        trace = await client.chat(request, request_id=live.request_id, phase=live.phase, family=live.family, live=live)
        reply = _reply(trace)
        if is_cut(reply):
            reply = replace(reply, content=client.opening(request) + trace.text)
        if question.max_tokens >= most or not is_cut(reply) or submit(problem, reply).is_complete:
            return Answered(
                problem,
                reply,
                completion_tokens=trace.completion_tokens,
                max_tokens=question.max_tokens,
                sample=question.sample,
                concurrency=concurrency,
                temperature=ask.coding.temperature,
                chunks=_chunks(live, trace) if ask.coding.temperature == 0 else None,
            )
        question = Question(problem, question.sample, min(question.max_tokens * 2, most))


def _reply(trace: RequestTrace) -> Reply:
    error = None if trace.error is None else f"{trace.error.value}: {trace.error_detail or 'no detail'}"
    return Reply(trace.text, trace.reasoning or None, trace.finish_reason, error)


def _chunks(live: LiveTrace, trace: RequestTrace) -> Chunks | None:
    """Where chunks end in reasoning and answer; None if the server did not count, or mixed the two."""
    if trace.chunk_tokens is None or len(live.text) != len(trace.chunk_tokens):
        return None
    if not _reasoning_first(zip(live.text, live.reasoning, strict=True)):
        return None
    lengths = (len(text) + len(reasoning) for text, reasoning in zip(live.text, live.reasoning, strict=True))
    return Chunks(tuple(accumulate(lengths)), trace.chunk_tokens)


def _reasoning_first(chunks: Iterable[tuple[str, str]]) -> bool:
    answering = False
    for text, reasoning in chunks:
        if answering and reasoning:
            return False
        answering = answering or bool(text)
    return True
