"""Coding problems, what became of each reply, and the pass rate.

Every attempt is counted once, in a class of its own: what the model got wrong, what the token
limit cut, what the server or the harness spoilt. A rate over nothing is None, never 0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from math import comb
from typing import TYPE_CHECKING

from ddtree_tune.core.stats import Interval, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddtree_tune.core.degenerate import Degeneration


class Outcome(StrEnum):
    """What became of one reply."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    WRONG_ANSWER = "wrong_answer"
    EXCEPTION = "exception"
    SYNTAX_ERROR = "syntax_error"
    TIMEOUT = "timeout"
    NO_CODE = "no_code"
    TRUNCATED = "truncated"
    """Cut at the token limit before the program was complete: not a wrong answer."""
    REQUEST_ERROR = "request_error"
    HARNESS_ERROR = "harness_error"
    """The sandbox misbehaved: not the model's failure."""


NOT_COMPLETED = frozenset({Outcome.TRUNCATED, Outcome.REQUEST_ERROR, Outcome.HARNESS_ERROR})
"""Outcomes that say nothing about the model's ability."""

NOT_ATTEMPTED = frozenset({Outcome.REQUEST_ERROR, Outcome.HARNESS_ERROR})
"""Outcomes without a reply that was graded."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One function to write, with its tests."""

    id: str
    entry_point: str
    prompt: str
    tests: str
    """Python source that defines ``check(candidate)``, which asserts."""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said to one problem."""

    content: str | None
    reasoning_content: str | None
    finish_reason: str | None
    error: str | None = None
    """Why the request failed, if it did."""

    @property
    def said(self) -> str:
        """All that was generated, reasoning first."""
        return (self.reasoning_content or "") + (self.content or "")


@dataclass(frozen=True, slots=True)
class Chunks:
    """Where the chunks of a streamed reply end, so that a character can be found among the tokens.

    A chunk carries a whole verify step: a character's token is known to within its chunk.
    """

    chars: tuple[int, ...]
    """Characters so far of reasoning and answer, at each chunk with text."""
    tokens: tuple[int, ...]
    """Tokens so far at each, by the server's count."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reply to one problem, graded."""

    problem_id: str
    kind: str
    outcome: Outcome
    reason: str
    code: str | None
    """The program that was run; None if there was none."""
    reply: Reply
    completion_tokens: int | None
    seconds: float | None
    """Run time of the program in the sandbox; None if it did not run."""
    max_tokens: int
    """Token limit of the request that was graded, after retries."""
    sandbox: str | None = None
    """Which level of isolation ran it."""
    sample: int = 0
    """Which of several replies to the same problem."""
    concurrency: int | None = None
    """Requests that were kept in flight when it was asked; None if that is not known."""
    temperature: float | None = None
    """Of the sampling, 0 is greedy; None if that is not known."""
    degenerate: Degeneration | None = None
    """What is wrong with the reply as a text, if anything."""
    chunks: Chunks | None = None
    """Of a greedy reply; None if it was sampled, or the server did not count."""

    @property
    def key(self) -> tuple[str, int, int | None]:
        """Which question it answers: problem, sample and concurrency."""
        return self.problem_id, self.sample, self.concurrency

    @property
    def greedy(self) -> bool:
        """Whether the reply is the likeliest one, which a setting must not change."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class PassRate:
    """How many of the attempts passed."""

    passed: int
    attempted: int
    """All attempts but request and harness errors, truncated ones included."""
    completed: int
    """Attempts that ended by themselves."""
    outcomes: tuple[tuple[str, int], ...]
    """Count per outcome that occurred, by name."""
    expected: int | None = None
    """How many attempts were to be made; None if nobody said."""

    @property
    def done(self) -> int:
        """Attempts with any outcome."""
        return sum(count for _, count in self.outcomes)

    @property
    def is_complete(self) -> bool:
        """Whether every expected attempt was graded; a rate over fewer is not the score."""
        return self.attempted > 0 and self.attempted == (self.done if self.expected is None else self.expected)

    @property
    def over_expected(self) -> float | None:
        """Passed over expected: errors count as not passed; None if nothing was attempted."""
        expected = self.done if self.expected is None else self.expected
        return self.passed / expected if expected and self.attempted else None

    def count(self, outcome: Outcome) -> int:
        """How many attempts ended so."""
        return dict(self.outcomes).get(outcome.value, 0)

    @property
    def over_all(self) -> float | None:
        """Passed over attempted; None without attempts."""
        return self.passed / self.attempted if self.attempted else None

    @property
    def over_completed(self) -> float | None:
        """Passed over completed; None without any."""
        return self.passed / self.completed if self.completed else None

    @property
    def interval(self) -> Interval | None:
        """95 % Wilson interval of ``over_all``; None without attempts."""
        return wilson(self.passed, self.attempted) if self.attempted else None

    @property
    def completed_interval(self) -> Interval | None:
        """95 % Wilson interval of ``over_completed``; None without any."""
        return wilson(self.passed, self.completed) if self.completed else None


def latest(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """One attempt per question, the last one given: a resumed run writes some twice."""
    return tuple({one.key: one for one in attempts}.values())


def served(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The attempts at the largest concurrency, the one that is served: the pass rate is over them."""
    found = tuple(attempts)
    largest = max((one.concurrency or 0 for one in found), default=0)
    return tuple(one for one in found if (one.concurrency or 0) == largest)


def at_concurrencies(attempts: Iterable[Attempt]) -> dict[int | None, tuple[Attempt, ...]]:
    """Attempts by the concurrency at which they were asked, in their order."""
    found: dict[int | None, list[Attempt]] = {}
    for one in attempts:
        found.setdefault(one.concurrency, []).append(one)
    return {users: tuple(of) for users, of in found.items()}


def pass_rate(attempts: Iterable[Attempt], expected: int | None = None) -> PassRate:
    """Count the attempts at the concurrency that is served, each problem and sample once.

    Args:
        attempts: in the order in which they were made.
        expected: how many there should be, where the run may have ended early.
    """
    return count_outcomes((one.outcome for one in latest(served(attempts))), expected)


def count_outcomes(outcomes: Iterable[Outcome], expected: int | None = None) -> PassRate:
    """The pass rate of bare outcomes, one per attempt."""
    counts = Counter(outcomes)
    attempted = sum(count for outcome, count in counts.items() if outcome not in NOT_ATTEMPTED)
    return PassRate(
        passed=counts[Outcome.PASS],
        attempted=attempted,
        completed=attempted - counts[Outcome.TRUNCATED],
        outcomes=tuple(sorted((outcome.value, count) for outcome, count in counts.items())),
        expected=expected,
    )


def pass_at_k(passed: int, samples: int, k: int) -> float | None:
    """Chance that at least one of k samples passes, estimated without bias; None below k samples.

    ``1 - C(n - c, k) / C(n, k)``.
    Source: Chen et al., arXiv 2107.03374, section 2.1; undefined rather than 1 for n < k.

    Args:
        passed: c, how many of the samples passed.
        samples: n, how many there are.
        k: at least 1.
    """
    if samples < k or samples < 1:
        return None
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def mean_pass_at_k(outcomes: Mapping[str, Sequence[Outcome]], k: int) -> float | None:
    """Mean of ``pass_at_k`` over problems; None where any problem has fewer than k graded samples.

    Args:
        outcomes: by problem; request and harness errors are no samples.
        k: at least 1.
    """
    graded = [[one for one in of_problem if one not in NOT_ATTEMPTED] for of_problem in outcomes.values()]
    values = [pass_at_k(of_problem.count(Outcome.PASS), len(of_problem), k) for of_problem in graded]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def min_samples(outcomes: Mapping[str, Sequence[Outcome]]) -> int:
    """The fewest graded samples that any problem has; 0 without problems."""
    counts = [sum(one not in NOT_ATTEMPTED for one in of_problem) for of_problem in outcomes.values()]
    return min(counts, default=0)


def pass_at_ks(attempts: Iterable[Attempt]) -> tuple[tuple[int, float], ...]:
    """(k, pass@k) for one and for all samples, at the concurrency that is served.

    Returns:
        Nothing where no problem has several graded samples, for pass@1 is then the pass rate.
    """
    outcomes: dict[str, list[Outcome]] = {}
    for one in latest(served(attempts)):
        outcomes.setdefault(one.problem_id, []).append(one.outcome)
    samples = min_samples(outcomes)
    values = ((k, mean_pass_at_k(outcomes, k)) for k in ((1, samples) if samples > 1 else ()))
    return tuple((k, value) for k, value in values if value is not None)
