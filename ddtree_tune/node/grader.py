"""Asks a server for programs and grades them.

Replies come first, at the served concurrency; programs run only while no request is in flight,
so that neither disturbs the other's clock. A program that ran out of time is run once more alone:
on a busy machine only that is its own fault.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import Outcome
from ddtree_tune.core.errors import GradeError, boundary
from ddtree_tune.core.judge import settle, submit
from ddtree_tune.node.asking import Asking, Question, ask_all
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.problems import load_problems
from ddtree_tune.node.sandbox import Sandbox, job_for, open_sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.coding import Attempt, Problem
    from ddtree_tune.core.coding_spec import CodingSpec
    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.judge import Answered, Verdict

_MOST_WORKERS = 16
_AGAIN = frozenset({Outcome.TIMEOUT, Outcome.HARNESS_ERROR})
"""Verdicts that a second run, alone, may lift."""


async def evaluate(
    ask: Asking, problems: Sequence[Problem], concurrencies: Sequence[int], *, limits: Limits | None = None
) -> tuple[Attempt, ...]:
    """Ask every problem at each concurrency and grade every reply.

    A reply that the token limit cut is asked for again with twice the tokens, up to
    ``retry_max_tokens``, and counts as truncated if even that does not suffice.

    Args:
        ask: whom to ask, and how.
        problems: with different ids.
        concurrencies: requests in flight, one after the other.
        limits: on each program; the coding section's when None.

    Returns:
        One attempt per concurrency, problem and sample, in that order.

    Raises:
        GradeError: no sandbox works here.
    """
    coding = ask.coding
    limits = limits or Limits(cpu_s=coding.cpu_s, wall_s=coding.wall_s)
    sandbox = await asyncio.to_thread(open_sandbox, allow_weak=coding.sandbox == "weak")
    wanted = [Question(problem, sample, coding.max_tokens) for problem in problems for sample in range(coding.samples)]
    attempts: list[Attempt] = []
    for users in concurrencies:
        settled: dict[tuple[str, int], Attempt] = {}
        waiting = wanted
        while waiting:
            replies = await ask_all(ask, waiting, users)
            graded = await asyncio.to_thread(grade_replies, replies, sandbox, limits)
            settled |= {(one.problem_id, one.sample): one for one in graded}
            waiting = [
                Question(answer.problem, answer.sample, min(answer.max_tokens * 2, coding.retry_max_tokens))
                for answer, one in zip(replies, graded, strict=True)
                if one.outcome is Outcome.TRUNCATED and one.max_tokens < coding.retry_max_tokens
            ]
        attempts += [settled[one.problem.id, one.sample] for one in wanted]
    return tuple(attempts)


def grade_replies(
    answers: Sequence[Answered], sandbox: Sandbox, limits: Limits, *, workers: int | None = None
) -> tuple[Attempt, ...]:
    """Grade replies that are there.

    Args:
        answers: what to grade.
        sandbox: where programs run.
        limits: on each program.
        workers: programs run at once; as many as there are cores, up to 16, when None.

    Returns:
        One attempt per answer, in order.
    """
    submissions = [submit(answer.problem, answer.reply) for answer in answers]

    def run(number: int) -> Verdict | None:
        code = submissions[number].code
        if code is None:
            return None
        answer = answers[number]
        own = limits if answer.cpu_s is None else Limits(cpu_s=answer.cpu_s, wall_s=2 * answer.cpu_s)
        return sandbox.run(job_for(answer.problem, code), own)

    with ThreadPoolExecutor(workers or min(_cores(), _MOST_WORKERS), thread_name_prefix="grade") as pool:
        verdicts = list(pool.map(run, range(len(answers))))
    for number, verdict in enumerate(verdicts):
        if verdict and verdict.outcome in _AGAIN:
            verdicts[number] = run(number)
    return tuple(map(settle, answers, submissions, verdicts, [sandbox.level] * len(answers)))


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class NodeGrader:
    """``ports.Grader`` on this machine."""

    def __init__(self, coding: CodingSpec, *, served: int, seed: int, stall_s: float) -> None:
        """Read the problems.

        Args:
            coding: what is asked and how.
            served: the concurrency that is served, where the coding section names none.
            seed: of the sweep.
            stall_s: most time without a byte of a reply.
        """
        self._coding = coding
        self._concurrencies = coding.concurrencies(served)
        self._seed = seed
        self._stall_s = stall_s
        self._problems = load_problems(coding.problems, limit=coding.limit).problems

    def run(self, endpoint: Endpoint) -> Sequence[Attempt]:
        """See ``ports.Grader``."""
        ask = Asking(endpoint, self._coding, self._seed, self._stall_s)
        with boundary(GradeError, "grade the replies"):
            return asyncio.run(evaluate(ask, self._problems, self._concurrencies))
