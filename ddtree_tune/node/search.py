"""The study behind ask and tell: which setting runs next. The only file that knows Optuna.

The agenda says what is due; where it wants a new setting, a fresh in-memory Optuna study is made
from all that was told and asked once. So an answer depends on the records and the seed alone, and a
sweep that is resumed goes on as if it had not stopped.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from ddtree_tune.core.agenda import Agenda, Slot
from ddtree_tune.core.errors import INFRASTRUCTURE, SpecError
from ddtree_tune.core.objective import Verdict, failure_class
from ddtree_tune.core.record import Origin, Proposal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddtree_tune.core.beliefs import Hope
    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.foresight import Replayed
    from ddtree_tune.core.objective import Observation
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.space import Place
    from ddtree_tune.core.spec import SweepSpec

_RESAMPLES = 20
"""Draws before a sampler that repeats itself is given the nearest untried point."""
_STARTUP = 4
"""Random trials before a model of the others is made."""
_POPULATION = 8
"""Complete trials of one generation."""
_GENERATION = "NSGAIISampler:generation"
"""Where the genetic sampler looks for a trial's generation."""
_SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed, n_startup_trials=_STARTUP, multivariate=True),
    "gp": lambda seed: GPSampler(seed=seed, n_startup_trials=_STARTUP),
    "nsga2": lambda seed: NSGAIISampler(seed=seed, population_size=_POPULATION),
    "random": RandomSampler,
}
"""Optuna's, by the name that a spec gives them."""
_NEEDS = {"gp": ("scipy", "torch")}
"""Packages that a sampler imports only when it makes its first model."""
_STATES = {
    Verdict.MEASURED: TrialState.COMPLETE,
    Verdict.STOPPED: TrialState.PRUNED,
    Verdict.UNSCORED: TrialState.FAIL,
    Verdict.INFEASIBLE: TrialState.PRUNED,
    Verdict.LOST: TrialState.FAIL,
}


class Study:
    """One sweep's search: ask for a trial, tell what became of it."""

    def __init__(
        self,
        spec: SweepSpec,
        dialect: Dialect,
        records: Sequence[TrialRecord] = (),
        replayed: Replayed | None = None,
    ) -> None:
        """Start a study, or go on with one.

        Args:
            spec: the sweep.
            dialect: how its engine spells the knobs.
            records: what earlier runs of the same sweep left. Trials that were lost count as not
                asked; the others are told again.
            replayed: traces of drafts that the surrogate starts from, if there are any.

        Raises:
            SpecError: the sampler needs what is not installed.
        """
        _require(spec.search.sampler)
        self._spec = spec
        self._agenda = Agenda(spec, dialect, replayed)
        self._space = self._agenda.space
        self._encoded = {config_id: self._space.encode(place) for config_id, place in self._space.places.items()}
        self._distributions = self._axes(dialect)
        self._issued = 0
        for record in sorted(records, key=lambda one: one.trial_id):
            self._issued = max(self._issued, int(record.trial_id.partition("-")[0]))
            if failure_class(record) not in INFRASTRUCTURE:
                self._agenda.tell(Slot.of(record.proposal), record)

    @property
    def done(self) -> bool:
        """Whether ``ask`` will never give another trial; otherwise its None means wait for a tell."""
        return self.stopped is not None or self._agenda.over

    @property
    def stopped(self) -> str | None:
        """Why the sweep gave up, in one sentence; None if it did not."""
        return self._agenda.stopped

    def ranking(self) -> tuple[EngineConfig, ...]:
        """The complete settings that may be recommended, the one that is believed to be best first."""
        return self._agenda.ranking()

    def next_hope(self) -> Hope | None:
        """What the search would try if it had another trial; None where there is nothing, or nothing is known."""
        if not self._agenda.untried():
            return None
        return self._agenda.beliefs(finals=False).hope(self._choose())

    def ask(self) -> Proposal | None:
        """The next trial; None if there is none now, see ``done``."""
        if self.stopped is not None:
            return None
        slot = self._agenda.due()
        if slot is None and self._agenda.wants_proposal:
            slot = Slot(self._choose(), Origin.SEARCH)
        if slot is None:
            return None
        self._issued += 1
        final = slot.origin is Origin.FINAL
        name = f"{self._issued:04d}-{slot.config.config_id}" + (f"-r{slot.round + 1}" if final else "")
        self._agenda.running[name] = slot
        coding = self._spec.coding is not None and not final
        reference, pace = self._agenda.reference(), self._agenda.pace(slot)
        return Proposal(name, slot.config, slot.origin, coding, slot.round, reference, pace, slot.users)

    def tell(self, record: TrialRecord) -> None:
        """Take in what a trial left."""
        self._agenda.running.pop(record.trial_id, None)
        self._agenda.tell(Slot.of(record.proposal), record)

    def snapshot(self, sampler: BaseSampler | None = None) -> optuna.Study:
        """An Optuna study of all that is known now.

        A setting that the engine refused is pruned and violates a constraint: samplers learn from
        it. One that was stopped is pruned with what its first cells told. Optuna ignores a failed
        trial, which is right for one that was lost. Baselines have no place in the space and are
        left out.
        """
        known: list[tuple[TrialState, Slot, Observation | None]] = []
        known += [(_STATES[seen.verdict], slot, seen) for slot, seen in self._agenda.observations()]
        known += [(TrialState.FAIL, slot, None) for slot in self._agenda.lost.elements()]
        known += [(TrialState.RUNNING, slot, None) for slot in self._agenda.running.values()]
        with _quiet():
            goals = len(self._spec.objective.goals)
            study = optuna.create_study(directions=["maximize"] * goals, sampler=sampler)
            complete = 0
            for state, slot, seen in known:
                place = self._space.place(slot.config)
                stopped = seen is not None and seen.verdict is Verdict.STOPPED
                if place is not None and slot.origin is not Origin.FINAL:
                    trial = create_trial(
                        state=state,
                        values=_values(seen),
                        params=place,
                        distributions=self._distributions,
                        constraints=dict(seen.constraints) if seen else None,
                        intermediate_values={0: seen.first.log} if stopped and seen and seen.first else None,
                        system_attrs={_GENERATION: complete // _POPULATION},
                    )
                    study.add_trial(trial)
                    complete += state is TrialState.COMPLETE
        return study

    def _choose(self) -> EngineConfig:
        """A point that no trial has, by the sampler that the spec names."""
        untried = self._agenda.untried()
        name = self._spec.search.sampler
        if name == "grid":
            return next(iter(untried.values()))
        if name == "surrogate":
            running = [slot.config for slot in self._agenda.running.values() if slot.origin is not Origin.FINAL]
            beliefs, goals = self._agenda.beliefs(), len(self._spec.objective.goals)
            if goals == 1:
                return beliefs.promising(untried, running)
            return beliefs.between(untried, running, np.random.default_rng(self._seeds()), goals)
        seed = int(self._seeds().generate_state(1)[0])
        with _quiet():
            study = self.snapshot(_SAMPLERS[name](seed))
            for _ in range(_RESAMPLES):
                trial = study.ask(self._distributions)
                found = self._nearest(trial.params, tuple(self._space.places))
                if found in untried:
                    return untried[found]
                study.tell(trial, state=TrialState.FAIL)
        return untried[self._nearest(trial.params, tuple(untried))]

    def _seeds(self) -> np.random.SeedSequence:
        """Randomness of the next trial."""
        return np.random.SeedSequence([self._spec.search.seed % 2**32, self._issued])

    def _nearest(self, place: Place, among: Sequence[str]) -> str:
        """The configuration, by id, that lies nearest."""
        away = np.asarray([self._encoded[config_id] for config_id in among]) - self._space.encode(place)
        return among[int((away**2).sum(axis=1).argmin())]

    def _axes(self, dialect: Dialect) -> dict[str, BaseDistribution]:
        """The axes as Optuna has them, wide enough for seeds beyond the listed values."""
        seeds = (self._space.place(dialect.canonical(seed.config())) for seed in self._spec.seeds)
        places = [*self._space.places.values(), *(place for place in seeds if place is not None)]
        result: dict[str, BaseDistribution] = {}
        for axis in self._space.axes:
            at = [place[axis.name] for place in places]
            # A float from a categorical axis is the index of its value.
            result[axis.name] = (
                FloatDistribution(min(at), max(at)) if axis.ordered else CategoricalDistribution(sorted(set(at)))
            )
        return result


def _values(seen: Observation | None) -> list[float] | None:
    """The values of a trial, one per goal; None where it has none."""
    if seen is None or seen.value is None:
        return None
    return [seen.value, *(goal.log for goal in seen.others)]


def _require(sampler: str) -> None:
    """Raise SpecError if a sampler needs what is not installed: it would only find out at its first model."""
    needed = _NEEDS.get(sampler, ())
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise SpecError(
            f"search.sampler {sampler} must find {' and '.join(needed)}, but got no {' and no '.join(missing)}; "
            "pip install 'ddtree-tune[gp]', or take surrogate"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's log lines and its warnings of experimental features to itself."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
