"""What the search is told of a trial: a value, constraints, or that there is nothing to learn.

The value is the logarithm of the score, so that equal steps are equal gains. A constraint above 0
is violated. A failure that is the configuration's own makes it infeasible, which is learned; one
of the machinery teaches nothing.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import count_outcomes, latest, served
from ddtree_tune.core.coherence import judged
from ddtree_tune.core.errors import INFRASTRUCTURE, FailureClass
from ddtree_tune.core.goals import LATENCIES, base_quantities, latency_gain, pass_gain
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION, log_score, pooled_rates, speedup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddtree_tune.core.coding import PassRate
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.objective_spec import Goal
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.step_time import Estimate


BEHIND = "behind after the first cells"
"""Why a trial was stopped, in words."""


class Verdict(StrEnum):
    """What a trial means to the search."""

    MEASURED = "measured"
    STOPPED = "stopped"
    """It was behind in the first cells."""
    UNSCORED = "unscored"
    """It ran to its end, and a cell of it cannot be used."""
    INFEASIBLE = "infeasible"
    """The engine cannot do this configuration."""
    LOST = "lost"
    """Something else broke: the configuration is as unknown as before."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What trials of one sweep are held against."""

    base: Mapping[str, float]
    """Output tokens per second of no speculation, by cell."""
    base_pass_rate: PassRate | None
    """Of no speculation, if it is known."""
    margin: float
    """By how much the pass rate may lie below it."""
    weights: Mapping[str, float]
    """How much each cell counts."""
    limits: Mapping[str, Mapping[str, float]]
    """Seconds by cell and summary that the 95th percentile may not exceed."""
    first: frozenset[str]
    """The cells that come first; empty where trials run whole."""
    others: tuple[Goal, ...]
    """What a setting is to be good at beside speed."""
    base_quick: Mapping[Goal, Mapping[str, float]]
    """One over the 95th percentile of no speculation, by goal of latency and cell."""

    @classmethod
    def of(cls, spec: SweepSpec, plain: Sequence[TrialRecord]) -> Yardstick:
        """The yardstick of a sweep.

        Args:
            spec: the sweep.
            plain: trials without speculation that scores are taken over.
        """
        return cls(
            base=pooled_rates(plain, NO_SPECULATION),
            base_pass_rate=pooled_pass_rate(plain),
            margin=spec.search.pass_rate_margin,
            weights=spec.weights(),
            limits={cell.cell_id: spec.objective.limits(cell) for cell in spec.load.cells()},
            first=frozenset(cell.cell_id for cell in spec.load.first_cells()),
            others=spec.objective.others,
            base_quick=base_quantities(plain, spec.objective.others),
        )

    def over(self, cells: Iterable[str]) -> Yardstick:
        """The yardstick of speed alone over some cells, equally where none of them counts.

        Args:
            cells: their ids.
        """
        mine = frozenset(cells)
        shares = {cell: self.weights[cell] for cell in mine}
        return replace(
            self,
            base={cell: tps for cell, tps in self.base.items() if cell in mine},
            weights=shares if any(shares.values()) else dict.fromkeys(mine, 1.0),
            limits={cell: limits for cell, limits in self.limits.items() if cell in mine},
            first=frozenset(),
            others=(),
        )

    @property
    def first_base(self) -> dict[str, float]:
        """No speculation's tokens per second in the first cells; empty where one of them is not known."""
        known = {cell: tps for cell, tps in self.base.items() if cell in self.first}
        return known if len(known) == len(self.first) else {}


@dataclass(frozen=True, slots=True)
class Observation:
    """One trial as the search sees it."""

    verdict: Verdict
    value: float | None = None
    """Logarithm of the speed-up over no speculation."""
    deviation: float = 0.0
    """Of the value, by the trial's own intervals."""
    first: Estimate | None = None
    """Logarithm of the speed-up over the cells that come first."""
    others: tuple[Estimate, ...] = ()
    """How it does at each further goal, see `goals`; complete where there is a value."""
    constraints: tuple[tuple[str, float], ...] = ()
    """(name, by how much it is violated): above 0 is a violation."""
    reason: str | None = None
    """Why there is no value."""

    @property
    def feasible(self) -> bool:
        """Whether the setting may be recommended."""
        return self.verdict is not Verdict.INFEASIBLE and all(value <= 0 for _, value in self.constraints)


@dataclass(frozen=True, slots=True)
class Broken:
    """A latency limit that a setting does not keep."""

    cell_id: str
    summary: str
    """ttft_s or tpot_s."""
    seconds: float
    """95th percentile; median of the setting's trials."""
    limit_s: float


def failure_class(record: TrialRecord) -> FailureClass | None:
    """Why a trial broke; None if it did not.

    A record without a failure that is not complete was being written when its writer was killed.
    """
    if record.measured:
        return None
    return record.failure.failure if record.failure else FailureClass.INTERRUPTED


def observe(record: TrialRecord, yardstick: Yardstick) -> Observation:
    """Say what a trial means to the search."""
    failure = failure_class(record)
    if failure is not None:
        verdict = Verdict.LOST if failure in INFRASTRUCTURE else Verdict.INFEASIBLE
        constraints = (("failed", 1.0),) * (verdict is Verdict.INFEASIBLE)
        return Observation(verdict, constraints=constraints, reason=failure.value)
    constraints = (
        *_pass_rate(record.pass_rate, yardstick.base_pass_rate, yardstick.margin),
        *_latencies([record], yardstick.limits),
    )
    cells = [cell.metrics for cell in record.cells]
    first = log_score(cells, yardstick.first_base, yardstick.weights)
    if record.status is TrialStatus.STOPPED:
        return Observation(Verdict.STOPPED, first=first, constraints=constraints, reason=BEHIND)
    score = log_score(cells, yardstick.base, yardstick.weights)
    if score is None:
        reason = speedup(record, yardstick.base, yardstick.weights).reason
        return Observation(Verdict.UNSCORED, first=first, constraints=constraints, reason=reason)
    others = {goal: _gain(record, goal, yardstick) for goal in yardstick.others}
    unknown = [goal.value for goal, gain in others.items() if gain is None]
    if unknown:
        return Observation(Verdict.UNSCORED, first=first, constraints=constraints, reason=f"no {unknown[0]} is known")
    known = tuple(gain for gain in others.values() if gain is not None)
    return Observation(Verdict.MEASURED, score.log, score.deviation, first, known, constraints)


def _gain(record: TrialRecord, goal: Goal, yardstick: Yardstick) -> Estimate | None:
    """How a trial does at a goal beside speed; None where that is not known."""
    if goal in LATENCIES:
        return latency_gain(record, goal, yardstick.base_quick[goal], yardstick.weights)
    return pass_gain(record.pass_rate, yardstick.base_pass_rate)


@dataclass(frozen=True, slots=True)
class Leader:
    """The setting that a sweep would recommend if it ended now."""

    config: EngineConfig
    speedup: float
    """Over no speculation, as the search measured it."""


def leader(records: Iterable[TrialRecord], spec: SweepSpec) -> Leader | None:
    """The best setting that the search has measured so far and that may be recommended, a baseline perhaps.

    Args:
        records: of the sweep; finals say nothing here.
        spec: the sweep.
    """
    searched = [one for one in judged(records) if one.proposal.origin is not Origin.FINAL]
    yardstick = Yardstick.of(spec, [one for one in searched if one.config == NO_SPECULATION])
    seen = ((one.config, observe(one, yardstick)) for one in searched)
    known = [(one.value, config) for config, one in seen if one.feasible and one.value is not None]
    value, config = max(known, key=lambda one: one[0], default=(0.0, None))
    return Leader(config, math.exp(value)) if config is not None else None


def pooled_pass_rate(records: Iterable[TrialRecord]) -> PassRate | None:
    """The pass rate over all attempts of some trials at the concurrency that is served; None without any."""
    outcomes = [attempt.outcome for record in records for attempt in latest(served(record.attempts))]
    return count_outcomes(outcomes) if outcomes else None


def broken(records: Iterable[TrialRecord], limits: Mapping[str, Mapping[str, float]]) -> tuple[Broken, ...]:
    """The latency limits that one setting does not keep, by the median of its trials.

    A percentile that too few requests tell is not known, and breaks nothing.

    Args:
        records: the setting's trials.
        limits: seconds by cell and summary.
    """
    known = _p95s(records, limits)
    return tuple(Broken(*key, seconds, limit) for key, (seconds, limit) in known.items() if seconds > limit)


def _latencies(
    records: Iterable[TrialRecord], limits: Mapping[str, Mapping[str, float]]
) -> tuple[tuple[str, float], ...]:
    """A constraint per limit whose percentile is known: log(p95 / limit)."""
    known = _p95s(records, limits)
    return tuple(
        (f"{summary} in {cell}", math.log(seconds / limit)) for (cell, summary), (seconds, limit) in known.items()
    )


def _p95s(
    records: Iterable[TrialRecord], limits: Mapping[str, Mapping[str, float]]
) -> dict[tuple[str, str], tuple[float, float]]:
    """(95th percentile, limit) by cell and summary, medians over complete or stopped trials."""
    seen: dict[tuple[str, str], list[float]] = {}
    for record in records:
        for cell in record.cells if record.measured else ():
            for summary in limits.get(cell.metrics.cell_id, {}):
                p95 = getattr(cell.metrics, summary).p95
                if p95 is not None and p95 > 0:
                    seen.setdefault((cell.metrics.cell_id, summary), []).append(p95)
    return {key: (statistics.median(values), limits[key[0]][key[1]]) for key, values in seen.items()}


def _pass_rate(mine: PassRate | None, base: PassRate | None, margin: float) -> tuple[tuple[str, float], ...]:
    """The constraint on the pass rate; none where either evaluation has no completed attempt."""
    if mine is None or base is None or not (mine.completed and base.completed):
        return ()
    if mine.over_all is None or base.over_all is None:
        return ()
    return (("pass_rate", base.over_all - mine.over_all - margin),)
