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
    """One attempt per problem and sample, the last one given: a resumed run writes some twice."""
    return tuple({(one.problem_id, one.sample): one for one in attempts}.values())


def pass_rate(attempts: Iterable[Attempt], expected: int | None = None) -> PassRate:
    """Count attempts, each problem and sample once.

    Args:
        attempts: in the order in which they were made.
        expected: how many there should be, where the run may have ended early.
    """
    return count_outcomes((one.outcome for one in latest(attempts)), expected)


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


@dataclass(frozen=True, slots=True)
class Paired:
    """Two configurations on the same problems."""

    both: int
    only_first: int
    """Problems that only the first one passed."""
    only_second: int
    neither: int

    @property
    def agree(self) -> int:
        """Problems with the same verdict."""
        return self.both + self.neither

    @property
    def discordant(self) -> int:
        """Problems with different verdicts: all that the test looks at."""
        return self.only_first + self.only_second

    @property
    def difference(self) -> float | None:
        """Second pass rate less the first; None without a common problem."""
        total = self.agree + self.discordant
        return (self.only_second - self.only_first) / total if total else None

    @property
    def p_value(self) -> float:
        """Two-sided exact McNemar test of equal pass rates; 1.0 where the verdicts never differ.

        Twice the binomial tail of the rarer kind of discordant pair at one half, at most 1.
        Source: McNemar, Psychometrika 12 (1947) 153-157, with the exact binomial instead of chi-squared.
        """
        n, rarer = self.discordant, min(self.only_first, self.only_second)
        return min(1.0, 2 * sum(comb(n, k) for k in range(rarer + 1)) / (1 << n))


def paired(first: Iterable[Attempt], second: Iterable[Attempt]) -> Paired:
    """Compare two evaluations on the problems that both of them graded."""
    ours, theirs = (
        {(one.problem_id, one.sample): one.outcome for one in latest(side) if one.outcome not in NOT_ATTEMPTED}
        for side in (first, second)
    )
    return pair_outcomes([(ours[key], theirs[key]) for key in ours if key in theirs])


def pair_outcomes(pairs: Iterable[tuple[Outcome, Outcome]]) -> Paired:
    """Compare outcomes of the same problems, as (first, second)."""
    counts = Counter((one is Outcome.PASS, other is Outcome.PASS) for one, other in pairs)
    return Paired(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


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
