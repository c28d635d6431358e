"""What a sweep still has to run, decided from what was told so far and nothing else.

Baselines come first, then seeds, then proposals of the search until enough trials are valid, then
the finals. What the machinery broke is asked again a few times; what the engine refused is not.
The same records always give the same agenda: that is what makes a sweep resumable.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.beliefs import Beliefs
from ddtree_tune.core.coherence import judged
from ddtree_tune.core.errors import INFRASTRUCTURE, Blame, FailureClass, blame
from ddtree_tune.core.foresight import foresee
from ddtree_tune.core.noise import drift
from ddtree_tune.core.objective import Observation, Verdict, Yardstick, failure_class, observe
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.rungs import set_pace
from ddtree_tune.core.space import Space, size_key
from ddtree_tune.core.speedup import NO_SPECULATION, merged, rates
from ddtree_tune.core.step_time import Estimate
from ddtree_tune.core.winners import TIE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.foresight import Replayed
    from ddtree_tune.core.record import Proposal, TrialRecord
    from ddtree_tune.core.rungs import Pace
    from ddtree_tune.core.spec import SweepSpec

LOST_TRIES = 3
"""Times a configuration is tried while the machinery breaks under it."""
UNSCORED_TRIES = 2
"""Times a configuration is measured while a cell of it cannot be used."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One measurement that the sweep wants."""

    config: EngineConfig
    origin: Origin
    round: int = 0
    users: tuple[int, ...] = ()
    """See `Proposal`."""

    @classmethod
    def of(cls, proposal: Proposal) -> Slot:
        """What a trial was to measure."""
        return cls(proposal.config, proposal.origin, proposal.round, proposal.users)


_BASE = Slot(NO_SPECULATION, Origin.BASELINE)
_SEARCHED = frozenset({Origin.SEED, Origin.SEARCH})


class Agenda:
    """What was told, what runs and what is due."""

    def __init__(self, spec: SweepSpec, dialect: Dialect, replayed: Replayed | None = None) -> None:
        self.space = Space.of(spec.space, dialect)
        self.running: dict[str, Slot] = {}
        """By trial id."""
        self.lost: Counter[Slot] = Counter()
        """How often the machinery broke under each slot."""
        self._doubted: dict[Slot, None] = {}
        """Slots that failed once in a way that may have been chance."""
        self.told: dict[Slot, list[TrialRecord]] = {}
        """What each slot left, losses aside, and judged: garbage is a failure."""
        self._left: list[tuple[Slot, TrialRecord]] = []
        self._spec = spec
        self._replayed = replayed
        self._yardstick = Yardstick.of(spec, ())
        """The baselines as measured before the finals."""
        baselines = [Slot(config, Origin.BASELINE) for config in spec.baseline_configs()]
        seeds = {dialect.canonical(seed.config()): None for seed in spec.seeds}
        self._fixed = (*baselines, *(Slot(config, Origin.SEED) for config in seeds))

    def tell(self, slot: Slot, record: TrialRecord) -> None:
        """Take in one trial. One that was interrupted was not tried.

        A failure that may have been chance is not believed at first: the slot is tried once more.
        """
        failure = failure_class(record)
        if failure in INFRASTRUCTURE:
            self.lost[slot] += failure is not FailureClass.INTERRUPTED
        elif failure is not None and blame(failure) is Blame.NOBODY and slot not in self._doubted:
            self._doubted[slot] = None
        else:
            self._left.append((slot, record))
            self._left.sort(key=lambda one: one[1].trial_id)  # as asked: nodes in parallel tell in any order
            fresh = judged(one for _, one in self._left)
            self.told = {}
            for (left_by, _), one in zip(self._left, fresh, strict=True):
                self.told.setdefault(left_by, []).append(one)
            self._yardstick = Yardstick.of(self._spec, self.told.get(_BASE, []))

    def observations(self, yardstick: Yardstick | None = None) -> Iterator[tuple[Slot, Observation]]:
        """Everything that was told, one observation per slot.

        Args:
            yardstick: what it is held against; the whole matrix when None.
        """
        for slot, records in self.told.items():
            yield slot, observe(merged(records), yardstick or self._yardstick)

    def beliefs(self, *, finals: bool = True, users: int | None = None) -> Beliefs:
        """What is believed of the settings that were searched.

        Args:
            finals: whether they tell of noise and of step times too.
            users: over the cells of so many requests in flight; over the whole matrix when None.
        """
        yardstick = self._yardstick if users is None else self._over([users])
        seen = [(slot.config, one) for slot, one in self.observations(yardstick) if slot.origin in _SEARCHED]
        told = (records for slot, records in self.told.items() if finals or slot.origin is not Origin.FINAL)
        records = [record for left in told for record in left]
        foresight = foresee(records, yardstick.weights, self._replayed)
        return Beliefs(self.space, seen, self._drift(finals=finals), foresight)

    def pace(self, slot: Slot) -> Pace | None:
        """What the first cells of a slot must keep up with; None where it runs whole.

        Nothing is stopped before there is a complete searched setting, and neither baselines and
        seeds nor the finals are.
        """
        base = self._yardstick.first_base
        if slot.origin is not Origin.SEARCH or not base:
            return None
        beliefs = self.beliefs()
        complete = [(one.value, one.first) for _, one in beliefs.seen if one.feasible and one.value is not None]
        best = max(((value, first) for value, first in complete if first is not None), default=None)
        return set_pace(best[1], base, self._yardstick.weights, beliefs.rest, beliefs.drift) if best else None

    def _drift(self, *, finals: bool) -> float:
        """Noise of whole trials, from what was measured more than once."""
        groups: dict[EngineConfig, list[Estimate]] = {}
        for slot, records in self.told.items():
            for record in records if finals or slot.origin is not Origin.FINAL else ():
                seen = observe(record, self._yardstick)
                if seen.value is not None:
                    groups.setdefault(slot.config, []).append(Estimate(seen.value, seen.deviation))
        return drift(groups.values())

    def due(self) -> Slot | None:
        """The next slot that needs no search: what comes first, what was lost, and the finals."""
        known = dict.fromkeys((*self._fixed, *self.told, *self.lost, *self._doubted))
        ordered = (*(slot for slot in known if slot.origin is not Origin.FINAL), *self._finals())
        return next((slot for slot in ordered if self._open(slot)), None)

    @property
    def wants_proposal(self) -> bool:
        """Whether a further setting should be tried now."""
        started = sum(slot.origin is not Origin.FINAL for slot in self.running.values())
        return not self._searched_enough and self._valid + started < self._spec.search.trials

    @property
    def over(self) -> bool:
        """Whether there is nothing left to run or to wait for."""
        return not self.running and self.due() is None and not self.wants_proposal

    @property
    def stopped(self) -> str | None:
        """Why the sweep gives up, if it does."""
        lost, most = self.lost.total(), self._spec.search.max_failures
        if lost >= most:
            return f"{lost} trials were lost to failures that are not the configuration's (search.max_failures: {most})"
        if not self._open(_BASE) and _BASE not in self.running.values() and not self._yardstick.base:
            return "no speculation, the base of every gain, could not be measured"
        return None

    def untried(self) -> dict[str, EngineConfig]:
        """Points of the space that no slot has, by id and in the space's order."""
        tried = {slot.config.config_id for slot in self._touched()}
        return {config_id: config for config_id, config in self.space.points.items() if config_id not in tried}

    def _touched(self) -> tuple[Slot, ...]:
        """Slots that were asked, run or are due first."""
        return (*self._fixed, *self.told, *self.lost, *self._doubted, *self.running.values())

    def reference(self) -> str | None:
        """The baseline's greedy answer to the gate's question, once it is known."""
        told = self.told.get(_BASE, [])
        return next((record.answer for record in told if record.status is TrialStatus.COMPLETE), None)

    def ranking(self) -> tuple[EngineConfig, ...]:
        """The complete settings that may be recommended, the one that is believed to be best first.

        With several goals those that no other is believed to beat at all of them come first. Finals
        tell of noise and step times too, but do not change who is in them.
        """
        beliefs = self.beliefs(finals=False)
        believed = beliefs.ranked()
        feasible = [config for config, one in beliefs.seen if one.feasible and config in believed]
        fastest = tuple(sorted(feasible, key=lambda config: (-believed[config], size_key(config))))
        goals = len(self._spec.objective.goals)
        return beliefs.compromises(fastest, goals) if goals > 1 else fastest

    def _finals(self) -> tuple[Slot, ...]:
        """The finals' slots, once the search is over; every other round in reverse, so that drift cancels."""
        searching = any(slot.origin is not Origin.FINAL for slot in self.running.values())
        if searching or not (self._searched_enough or self._valid >= self._spec.search.trials):
            return ()
        finalists = self.ranking()[: self._spec.search.final.settings]
        if not finalists:
            return ()
        baselines = [config for config in self._spec.baseline_configs() if self._measured(config)]
        arms = dict.fromkeys(finalists, ()) | self._of_bands(finalists) | dict.fromkeys(baselines, ())
        first = self._first_round(arms)
        return tuple(
            Slot(config, Origin.FINAL, n, users)
            for n in range(first, first + self._spec.search.final.rounds)
            for config, users in (reversed(arms.items()) if n % 2 else arms.items())
        )

    def _first_round(self, arms: Mapping[EngineConfig, tuple[int, ...]]) -> int:
        """The round that the finals begin with.

        Where the search went on after finals and has another finalist, all are measured again in new rounds:
        a round holds what was measured side by side.

        Args:
            arms: what is to be measured, with its numbers of users.
        """
        searched = max((one.trial_id for slot, one in self._left if slot.origin is not Origin.FINAL), default="")
        before = {slot for slot, one in self._left if slot.origin is Origin.FINAL and one.trial_id < searched}
        first = 1 + max((slot.round for slot in before), default=-1)
        while first and all(Slot(config, Origin.FINAL, first - 1, users) in before for config, users in arms.items()):
            first -= 1
        return first

    def _of_bands(self, finalists: Sequence[EngineConfig]) -> dict[EngineConfig, tuple[int, ...]]:
        """Settings that are believed to beat the finalists for some numbers of users by more than a tie."""
        found: dict[EngineConfig, tuple[int, ...]] = {}
        bands = sorted(set(self._spec.load.concurrency))
        for users in bands if self._spec.search.final.bands and len(bands) > 1 else ():
            beliefs = self.beliefs(finals=False, users=users)
            believed = beliefs.ranked()
            fit = {config: believed[config] for config, one in beliefs.seen if one.feasible and config in believed}
            best = max(fit, key=lambda config: (fit[config], *(-part for part in size_key(config))), default=None)
            known = max((believed[config] for config in finalists if config in fit), default=-math.inf)
            if best is not None and fit[best] > known + math.log1p(TIE):
                found[best] = (*found.get(best, ()), users)
        return found

    def _open(self, slot: Slot) -> bool:
        """Whether a slot has to be measured, for the first time or again."""
        if slot in self.running.values() or self.lost[slot] >= LOST_TRIES:
            return False
        records = self.told.get(slot, [])
        return not records or (len(records) < UNSCORED_TRIES and self._unscored(slot, merged(records)))

    def _unscored(self, slot: Slot, record: TrialRecord) -> bool:
        """Whether the slot's trials ran to their end and a cell that counts cannot be used."""
        if slot == _BASE:  # the cells that count are those that it has, so it should have all of the matrix
            missing = {cell.cell_id for cell in self._spec.load.cells()} - set(rates(record))
            return record.status is TrialStatus.COMPLETE and bool(missing)
        yardstick = self._over(slot.users) if slot.users else self._yardstick
        return bool(yardstick.base) and observe(record, yardstick).verdict is Verdict.UNSCORED

    def _over(self, users: Sequence[int]) -> Yardstick:
        """The yardstick over the cells of some numbers of requests in flight."""
        return self._yardstick.over(cell.cell_id for cell in self._spec.load.cells() if cell.concurrency in users)

    @property
    def _searched_enough(self) -> bool:
        """Whether the space, or the patience with what the engine refuses, is used up."""
        refused = sum(not self._measured(slot.config) for slot in self.told if slot.origin is not Origin.FINAL)
        return not self.untried() or refused >= self._spec.search.trials

    @property
    def _valid(self) -> int:
        """Configurations that ran to their end or were stopped behind, finals aside."""
        return sum(self._measured(config) for config in {slot.config for slot in self.told})

    def _measured(self, config: EngineConfig) -> bool:
        slots = [slot for slot in self.told if slot.config == config and slot.origin is not Origin.FINAL]
        return any(record.measured for slot in slots for record in self.told[slot])
