"""Searches as one gets them elsewhere: the baselines first, then what a sampler says, best measurement wins.

Nothing of this package's study is in them: a setting may be asked twice, a trial without a score is
a failed one, and no belief stands between a measurement and the recommendation. An axis is given as
the places of its values, 0, 1, 2, …, so that a sampler knows what lies beside what.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Protocol

import numpy as np
import optuna

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.record import Origin, Proposal, TrialStatus
from ddtree_tune.core.space import Space, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Sampler(Protocol):
    """Says which places of the axes to try."""

    def ask(self) -> dict[str, int] | EngineConfig:
        """The next setting, as places by axis or itself."""
        ...

    def tell(self, value: float | None) -> None:
        """What became of it; None if it failed."""
        ...


class Listed:
    """Settings in a given order."""

    def __init__(self, configs: Iterable[EngineConfig]) -> None:
        self._left: Iterator[EngineConfig] = iter(configs)

    def ask(self) -> EngineConfig:
        """The next one."""
        return next(self._left)

    def tell(self, value: float | None) -> None:
        """Nothing is learned."""


class Optuna:
    """An Optuna study with one of its samplers."""

    def __init__(self, sizes: dict[str, int], sampler: optuna.samplers.BaseSampler) -> None:
        self._axes = {name: optuna.distributions.IntDistribution(0, size - 1) for name, size in sizes.items()}
        self._study = optuna.create_study(direction="maximize", sampler=sampler)

    def ask(self) -> dict[str, int]:
        """The sampler's word."""
        self._trial = self._study.ask(self._axes)
        return self._trial.params

    def tell(self, value: float | None) -> None:
        """See ``Sampler``."""
        state = optuna.trial.TrialState.FAIL if value is None else None
        self._study.tell(self._trial, value, state=state)


class RayOptuna:
    """Ray Tune's OptunaSearch, as a Tuner would ask and tell it."""

    def __init__(self, sizes: dict[str, int], seed: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Imported here: Ray takes seconds, and only this search needs it.
            from ray import tune  # noqa: PLC0415
            from ray.tune.search.optuna import OptunaSearch  # noqa: PLC0415

            space = OptunaSearch.convert_search_space({name: tune.randint(0, size) for name, size in sizes.items()})
            self._search = OptunaSearch(space=space, metric="score", mode="max", seed=seed)
        self._asked = 0

    def ask(self) -> dict[str, int]:
        """What it suggests."""
        self._asked += 1
        return self._search.suggest(str(self._asked))

    def tell(self, value: float | None) -> None:
        """See ``Sampler``."""
        result = None if value is None else {"score": value}
        self._search.on_trial_complete(str(self._asked), result, error=value is None)


class AsItComes:
    """A sweep around a sampler."""

    def __init__(self, spec: SweepSpec, sampler: Sampler) -> None:
        self._space = Space.of(spec.space, BuiltinDialect())
        self._baselines = list(spec.baseline_configs())
        self._sampler = sampler
        self._best: tuple[float, EngineConfig | None] = (-math.inf, None)
        self._asked = 0

    def ask(self) -> Proposal:
        """The next trial."""
        self._asked += 1
        if self._asked <= len(self._baselines):
            config, origin = self._baselines[self._asked - 1], Origin.BASELINE
        else:
            said, origin = self._sampler.ask(), Origin.SEARCH
            if isinstance(said, dict):
                asked = resolve({axis.name: axis.values[said[axis.name]] for axis in self._space.axes})
                said = BuiltinDialect().canonical(asked)
            config = said
        return Proposal(f"{self._asked:04d}-{config.config_id}", config, origin, coding=False)

    def tell(self, record: TrialRecord) -> None:
        """Take in a trial: the geometric mean of its cells' tokens per second, or a failure."""
        if record.proposal.origin is Origin.BASELINE:
            return
        value = None
        if record.status is TrialStatus.COMPLETE and all(cell.metrics.scored for cell in record.cells):
            value = float(np.mean([math.log(cell.metrics.output_tps or 0.0) for cell in record.cells]))
            self._best = max(self._best, (value, record.config), key=lambda one: one[0])
        self._sampler.tell(value)

    def recommended(self) -> EngineConfig | None:
        """The setting with the best measurement."""
        return self._best[1]


def sizes_of(spec: SweepSpec) -> dict[str, int]:
    """How many values each axis has."""
    return {axis.name: len(axis.values) for axis in Space.of(spec.space, BuiltinDialect()).axes}


def points_of(spec: SweepSpec) -> list[EngineConfig]:
    """Every point of the space, in its order."""
    return list(Space.of(spec.space, BuiltinDialect()).points.values())
