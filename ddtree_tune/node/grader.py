"""Asks a server for programs and grades them.

Replies come first, at the served concurrency; programs run only while no request is in flight,
so that neither disturbs the other's clock, and at most one core less than there are is used. A
program that ran out of time is run once more alone: on a busy machine only that is its own fault.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.coding import Attempt, Outcome, Problem, Reply
from ddtree_tune.core.errors import GradeError, boundary
from ddtree_tune.core.judge import is_cut, settle, submit
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.client import ChatRequest, EngineClient, user
from ddtree_tune.node.problems import load_problems
from ddtree_tune.node.sandbox import Sandbox, job_for, open_sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.judge import Submission, Verdict
    from ddtree_tune.core.spec import CodingSpec
    from ddtree_tune.core.trace import RequestTrace

REPLY_S = 3600.0
"""Most time for one reply; a stall ends it much sooner."""
_AGAIN = frozenset({Outcome.TIMEOUT, Outcome.HARNESS_ERROR})
"""Verdicts that a second run, alone, may lift."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply to grade."""

    problem: Problem
    reply: Reply
    completion_tokens: int | None = None
    max_tokens: int = 0
    """Token limit of the request."""
    sample: int = 0
    limits: Limits | None = None
    """On the program, where the problem has its own."""


async def evaluate(
    endpoint: Endpoint,
    problems: Sequence[Problem],
    *,
    concurrency: int,
    max_tokens: int,
    retry_max_tokens: int,
    temperature: float = 0.0,
    seed: int | None = None,
    limits: Limits | None = None,
    allow_weak: bool = False,
    stall_s: float = 60.0,
    extra: Sequence[tuple[str, Any]] = (),
) -> tuple[Attempt, ...]:
    """Ask every problem and grade every reply.

    A reply that the token limit cut is asked for again with twice the tokens, up to
    ``retry_max_tokens``, and counts as truncated if even that does not suffice.

    Args:
        endpoint: the server.
        problems: with different ids.
        concurrency: replies asked for at once.
        max_tokens: limit of the first request for each problem.
        retry_max_tokens: limit of the last.
        temperature: 0 is greedy.
        seed: of sampling.
        limits: on each program.
        allow_weak: take a weak sandbox where no better one works.
        stall_s: most time without a byte of a reply.
        extra: further fields of the request body, as (name, value).

    Returns:
        One attempt per problem, in order.

    Raises:
        GradeError: no sandbox works here.
    """
    limits = limits or Limits()
    sandbox = await asyncio.to_thread(open_sandbox, allow_weak=allow_weak)
    settled: dict[str, Attempt] = {}
    asked = {problem.id: max_tokens for problem in problems}
    while asked:
        waiting = [(problem, asked[problem.id]) for problem in problems if problem.id in asked]
        ask = _Asking(endpoint, retry_max_tokens, temperature, seed, stall_s, tuple(extra))
        replies = await _ask_all(ask, waiting, concurrency)
        graded = await asyncio.to_thread(grade_replies, replies, sandbox, limits)
        settled |= {attempt.problem_id: attempt for attempt in graded}
        asked = {
            attempt.problem_id: min(attempt.max_tokens * 2, retry_max_tokens)
            for attempt in graded
            if attempt.outcome is Outcome.TRUNCATED and attempt.max_tokens < retry_max_tokens
        }
    return tuple(settled[problem.id] for problem in problems)


def grade_replies(
    answers: Sequence[Answered], sandbox: Sandbox, limits: Limits, *, workers: int | None = None
) -> tuple[Attempt, ...]:
    """Grade replies that are there.

    Args:
        answers: what to grade.
        sandbox: where programs run.
        limits: on each program.
        workers: programs run at once; one less than the cores when None.

    Returns:
        One attempt per answer, in order.
    """
    submissions = [submit(answer.problem, answer.reply) for answer in answers]

    def run(number: int) -> Verdict | None:
        code = submissions[number].code
        if code is None:
            return None
        answer = answers[number]
        return sandbox.run(job_for(answer.problem, code), answer.limits or limits)

    with ThreadPoolExecutor(workers or max(_cores() - 1, 1), thread_name_prefix="grade") as pool:
        verdicts = list(pool.map(run, range(len(answers))))
    for number, verdict in enumerate(verdicts):
        if verdict and verdict.outcome in _AGAIN:
            verdicts[number] = run(number)
    return tuple(map(_settled, answers, submissions, verdicts, [sandbox.level] * len(answers)))


def _settled(answer: Answered, submission: Submission, verdict: Verdict | None, level: str) -> Attempt:
    return settle(
        answer.problem,
        answer.reply,
        submission,
        verdict,
        completion_tokens=answer.completion_tokens,
        max_tokens=answer.max_tokens,
        sandbox=level,
        sample=answer.sample,
    )


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Asking:
    """How to ask."""

    endpoint: Endpoint
    retry_max_tokens: int
    temperature: float
    seed: int | None
    stall_s: float
    extra: tuple[tuple[str, Any], ...]


async def _ask_all(ask: _Asking, waiting: Sequence[tuple[Problem, int]], concurrency: int) -> list[Answered]:
    """Keep ``concurrency`` requests in flight until every problem has its reply."""
    queue = iter(enumerate(waiting))
    replies: dict[int, Answered] = {}

    async def stream() -> None:
        async with EngineClient(ask.endpoint, timeout_s=REPLY_S, stall_s=ask.stall_s) as client:
            for number, (problem, max_tokens) in queue:
                replies[number] = await _ask(client, ask, problem, max_tokens)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(waiting))):
            group.create_task(stream())
    return [replies[number] for number in range(len(waiting))]


async def _ask(client: EngineClient, ask: _Asking, problem: Problem, max_tokens: int) -> Answered:
    """One problem's reply, with as many tokens as its program needs."""
    while True:
        request = ChatRequest(
            user(problem.prompt), max_tokens=max_tokens, temperature=ask.temperature, seed=ask.seed, extra=ask.extra
        )
        trace = await client.chat(
            request,
            request_id=f"coding-{problem.id}-{max_tokens}",
            phase=Phase.WINDOW,
            family=problem.kind or "coding",
        )
        reply = _reply(trace)
        if max_tokens >= ask.retry_max_tokens or not is_cut(reply) or submit(problem, reply).is_complete:
            return Answered(problem, reply, trace.completion_tokens, max_tokens)
        max_tokens = min(max_tokens * 2, ask.retry_max_tokens)


def _reply(trace: RequestTrace) -> Reply:
    error = None if trace.error is None else f"{trace.error.value}: {trace.error_detail or 'no detail'}"
    return Reply(trace.text, trace.reasoning or None, trace.finish_reason, error)


class NodeGrader:
    """``ports.Grader`` on this machine."""

    def __init__(self, coding: CodingSpec, *, served: int, stall_s: float) -> None:
        """Read the problems.

        Args:
            coding: what is asked and how.
            served: the concurrency that is served, where the coding section names none.
            stall_s: most time without a byte of a reply.
        """
        self._coding = coding
        self._concurrency = coding.concurrency or served
        self._stall_s = stall_s
        self._problems = load_problems(coding.problems, limit=coding.limit).problems

    def run(self, endpoint: Endpoint) -> Sequence[Attempt]:
        """See ``ports.Grader``."""
        coding = self._coding
        with boundary(GradeError, "grade the replies"):
            return asyncio.run(
                evaluate(
                    endpoint,
                    self._problems,
                    concurrency=self._concurrency,
                    max_tokens=coding.max_tokens,
                    retry_max_tokens=coding.retry_max_tokens,
                    temperature=coding.temperature,
                    limits=Limits(cpu_s=coding.cpu_s, wall_s=coding.wall_s),
                    allow_weak=coding.sandbox == "weak",
                    stall_s=self._stall_s,
                )
            )
