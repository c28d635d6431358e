"""What the search is told of a trial: a value, constraints, or that there is nothing to learn.

The value is the logarithm of the score, so that equal steps are equal gains. A constraint above 0
is violated. A failure that is the configuration's own makes it infeasible, which is learned; one
of the machinery teaches nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import count_outcomes, latest, served
from ddtree_tune.core.errors import INFRASTRUCTURE, FailureClass
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.speedup import speedup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddtree_tune.core.coding import PassRate
    from ddtree_tune.core.record import TrialRecord


class Verdict(StrEnum):
    """What a trial means to the search."""

    MEASURED = "measured"
    UNSCORED = "unscored"
    """It ran to its end, and a cell of it cannot be used."""
    INFEASIBLE = "infeasible"
    """The engine cannot do this configuration."""
    LOST = "lost"
    """Something else broke: the configuration is as unknown as before."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One trial as the search sees it."""

    verdict: Verdict
    value: float | None = None
    """Logarithm of the speed-up over no speculation."""
    constraints: tuple[tuple[str, float], ...] = ()
    """(name, by how much it is violated): above 0 is a violation."""
    reason: str | None = None
    """Why there is no value."""

    @property
    def feasible(self) -> bool:
        """Whether the setting may be recommended."""
        return self.verdict is not Verdict.INFEASIBLE and all(value <= 0 for _, value in self.constraints)


def failure_class(record: TrialRecord) -> FailureClass | None:
    """Why a trial did not complete; None if it did.

    A record without a failure that is not complete was being written when its writer was killed.
    """
    if record.status is TrialStatus.COMPLETE:
        return None
    return record.failure.failure if record.failure else FailureClass.INTERRUPTED


def observe(
    record: TrialRecord, base: Mapping[str, float], base_pass_rate: PassRate | None, margin: float
) -> Observation:
    """Say what a trial means to the search.

    Args:
        record: the trial.
        base: output tokens per second of no speculation, by cell.
        base_pass_rate: of no speculation, if it is known.
        margin: by how much the pass rate may lie below it.
    """
    failure = failure_class(record)
    if failure is not None:
        verdict = Verdict.LOST if failure in INFRASTRUCTURE else Verdict.INFEASIBLE
        return Observation(verdict, None, (("failed", 1.0),) * (verdict is Verdict.INFEASIBLE), failure.value)
    constraints = _pass_rate(record.pass_rate, base_pass_rate, margin)
    result = speedup(record, base)
    if result.score is None:
        return Observation(Verdict.UNSCORED, None, constraints, result.reason)
    return Observation(Verdict.MEASURED, math.log(result.score), constraints)


def pooled_pass_rate(records: Iterable[TrialRecord]) -> PassRate | None:
    """The pass rate over all attempts of some trials at the concurrency that is served; None without any."""
    outcomes = [attempt.outcome for record in records for attempt in latest(served(record.attempts))]
    return count_outcomes(outcomes) if outcomes else None


def _pass_rate(mine: PassRate | None, base: PassRate | None, margin: float) -> tuple[tuple[str, float], ...]:
    """The constraint on the pass rate; none where either evaluation has no completed attempt."""
    if mine is None or base is None or not (mine.completed and base.completed):
        return ()
    if mine.over_all is None or base.over_all is None:
        return ()
    return (("pass_rate", base.over_all - mine.over_all - margin),)
