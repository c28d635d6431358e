"""The settings that no other beats at every goal of a sweep, and how sure that is: its Pareto front.

A front of measured values always holds lucky settings. So each is held against all others: where no
goal tells it apart from another setting for the better, that one is named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.coding_result import SIGNIFICANT
from ddtree_tune.core.frontier import undominated
from ddtree_tune.core.goals import LATENCIES, quantity
from ddtree_tune.core.measurements import Basis, Measurements
from ddtree_tune.core.objective_spec import Goal
from ddtree_tune.core.paired import paired
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.stats import Interval
from ddtree_tune.core.winners import Certainty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddtree_tune.core.coding import Attempt, PassRate
    from ddtree_tune.core.coding_result import CodingResult
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.measurements import Gain
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec


_DIGITS = 9
"""Of a logarithm: what differs beyond them differs by rounding alone."""


@dataclass(frozen=True, slots=True)
class Compromise:
    """How a setting does at each goal of a sweep."""

    config: EngineConfig
    speedup: Gain
    """Over no speculation."""
    latencies: tuple[tuple[Goal, Gain], ...]
    """By goal of latency: its 95th percentile over no speculation's, below 1 where it is shorter."""
    solved: PassRate | None
    """Coding problems, where they are a goal."""
    certainty: Certainty | None = None
    """None if it is not on the front: another setting is at least as good at every goal, and better at one."""
    rival: EngineConfig | None = None
    """In a tie: the fastest setting that no goal tells it apart from for the better."""

    @property
    def values(self) -> list[float]:
        """One number per goal, more is better."""
        times = [-math.log(gain.ratio) for _, gain in self.latencies]
        rate = self.solved.over_all if self.solved else None
        return [math.log(self.speedup.ratio), *times, *([] if rate is None else [rate])]


@dataclass(frozen=True, slots=True)
class _Goals:
    """What was measured of each goal."""

    tables: Mapping[Goal, Measurements]
    """Of speed and latencies."""
    solved: Mapping[EngineConfig, PassRate] | None
    """None where problems are no goal."""
    attempts: Mapping[EngineConfig, Sequence[Attempt]]

    def place(self, config: EngineConfig) -> Compromise | None:
        """A setting over no speculation; None where one of the goals is not known."""
        gains = {goal: table.gain(config, NO_SPECULATION) for goal, table in self.tables.items()}
        known = {goal: gain for goal, gain in gains.items() if gain is not None}
        if config == NO_SPECULATION:  # what it is beside itself is no measurement
            known = {goal: replace(gain, interval=None) for goal, gain in known.items()}
        if len(known) < len(gains) or (self.solved is not None and config not in self.solved):
            return None
        latencies = tuple((goal, _time(gain)) for goal, gain in known.items() if goal is not Goal.SPEEDUP)
        return Compromise(config, known[Goal.SPEEDUP], latencies, self.solved[config] if self.solved else None)

    def better(self, one: EngineConfig, other: EngineConfig) -> bool | None:
        """Whether some goal tells the first apart from the second for the better; None if nothing can tell."""
        gains = [table.gain(one, other) for table in self.tables.values()]
        found = [None if gain is None or gain.sure is None else gain.sure and gain.ratio > 1 for gain in gains]
        if self.solved is not None:
            pair = paired(self.attempts[other], self.attempts[one])
            found.append((pair.difference or 0.0) > 0 and pair.p_value <= SIGNIFICANT)
        return True if True in found else None if None in found else False


def compromises(
    records: Sequence[TrialRecord],
    spec: SweepSpec,
    basis: Basis,
    configs: Sequence[EngineConfig],
    coding: Sequence[CodingResult],
) -> tuple[Compromise, ...]:
    """How settings do at the goals of a sweep; empty where it has one goal alone.

    Args:
        records: every trial.
        spec: the sweep.
        basis: the measurements that are compared.
        configs: what may be run, baselines too.
        coding: of the settings that were evaluated.

    Returns:
        Every setting of which all goals are known: the front, then the others; the fastest first.
    """
    if not spec.objective.others:
        return ()
    of = Measurements.of_finals if basis is Basis.FINALS else Measurements.of_search
    cells = [goal for goal in spec.objective.goals if goal is Goal.SPEEDUP or goal in LATENCIES]
    goals = _Goals(
        tables={goal: of(records, spec.weights(), quantity(goal)) for goal in cells},
        solved={one.config: one.rate for one in coding if one.rate.over_all is not None}
        if Goal.SOLVED in spec.objective.goals
        else None,
        attempts={
            one: [got for record in records if record.config == one for got in record.attempts] for one in configs
        },
    )
    found = [one for one in map(goals.place, configs) if one is not None]
    found.sort(key=lambda one: -one.speedup.ratio)
    values = np.asarray([one.values for one in found]).reshape(len(found), len(spec.objective.goals))
    on = undominated(values.round(_DIGITS)).tolist()
    front = [_judged(one, found, goals) for one, kept in zip(found, on, strict=True) if kept]
    return (*front, *(one for one, kept in zip(found, on, strict=True) if not kept))


def _judged(one: Compromise, others: Sequence[Compromise], goals: _Goals) -> Compromise:
    """A setting of the front with how sure it is that it belongs there."""
    better = {other.config: goals.better(one.config, other.config) for other in others if other.config != one.config}
    if not better or None in better.values():
        return replace(one, certainty=Certainty.ONCE)
    rival = next((config for config, told in better.items() if not told), None)
    return replace(one, certainty=Certainty.SURE if rival is None else Certainty.TIE, rival=rival)


def _time(gain: Gain) -> Gain:
    """A gain in quickness as the share of the time that is left."""
    interval = gain.interval and Interval(1 / gain.interval.high, 1 / gain.interval.low)
    return replace(gain, ratio=1 / gain.ratio, interval=interval)
