"""Coding problems, what became of each reply, and the pass rate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ddtree_tune.core.stats import Interval, wilson


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
