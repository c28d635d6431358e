"""What the search believes of settings, from everything that trials said so far.

A complete trial tells a score, with the noise of its own intervals and of whole trials. One that
was stopped tells the score of its first cells, from which the matrix is guessed as complete trials
did beside their own first cells, and is believed so much less. A failure and a broken limit tell
where not to go. With several goals each has beliefs of its own, and the next setting is chosen by a
blend of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ddtree_tune.core.frontier import undominated
from ddtree_tune.core.goals import blended, ends_first
from ddtree_tune.core.noise import DRIFT
from ddtree_tune.core.objective import Verdict
from ddtree_tune.core.rungs import Rest
from ddtree_tune.core.step_time import Estimate
from ddtree_tune.core.surrogate import Foretold, Told, believed, chance, feasible, predicted, promising
from ddtree_tune.core.winners import TIE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.objective import Observation
    from ddtree_tune.core.space import Space


_DRAWS = 256
"""Of what the goals of a candidate may be."""


class Foresight(Protocol):
    """Foretells log scores."""

    def __call__(self, config: EngineConfig) -> NDArray[np.float64] | None:
        """The log score of a setting by each account of the engine, (v,) float64; None where nothing is known."""
        ...


@dataclass(frozen=True, slots=True)
class Hope:
    """What is expected of a setting before it is measured."""

    config: EngineConfig
    best: EngineConfig
    """The setting that is believed to be the fastest so far."""
    ratio: Estimate
    """Logarithm of the one's speed over the other's."""
    chance: float
    """That it is faster by more than a tie."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Settings with what was seen of them."""

    space: Space
    seen: Sequence[tuple[EngineConfig, Observation]]
    """Of searched settings and seeds; baselines and finals aside."""
    drift: float = DRIFT
    """Deviation of a whole trial's log score."""
    foresight: Foresight | None = None

    def of_goal(self, at: int) -> Beliefs:
        """What is believed of one of the goals instead of the speed.

        Args:
            at: which of the goals beside speed.
        """
        seen = [
            (config, replace(one, value=one.others[at].log, deviation=one.others[at].deviation))
            for config, one in self.seen
            if one.value is not None
        ]
        return replace(self, seen=seen, foresight=None)

    @property
    def rest(self) -> Rest:
        """How complete trials did in the cells beyond the first."""
        return Rest.of(
            [one.value - one.first.log for _, one in self.seen if one.value is not None and one.first is not None]
        )

    def scores(self) -> dict[EngineConfig, Estimate]:
        """Log score over the matrix by setting, measured or guessed from its first cells."""
        rest = self.rest
        found: dict[EngineConfig, Estimate] = {}
        for config, one in self.seen:
            if one.value is not None:
                found[config] = Estimate(one.value, math.hypot(one.deviation, self.drift))
            elif one.verdict is Verdict.STOPPED and one.first is not None:
                spread = math.hypot(one.first.deviation, self.drift, rest.deviation)
                found[config] = Estimate(one.first.log + rest.mean, spread)
        return found

    def promising(self, candidates: Mapping[str, EngineConfig], running: Sequence[EngineConfig]) -> EngineConfig:
        """The candidate to measure next.

        Args:
            candidates: points of the space by id, at least one.
            running: what is being measured now.
        """
        placed, told = self.told(running)
        configs = tuple(candidates.values())
        rows = np.asarray([self.space.encode(self.space.places[config_id]) for config_id in candidates])
        foretold = self._foretold(placed, running, configs)
        return configs[promising(rows, told, self.space.columns(), foretold)]

    def between(
        self,
        candidates: Mapping[str, EngineConfig],
        running: Sequence[EngineConfig],
        rng: np.random.Generator,
        goals: int,
    ) -> EngineConfig:
        """The candidate to measure next with several goals.

        The expected improvement of a blend of the goals, each with beliefs of its own, times the chance that
        the candidate is feasible. The blend is another one every time.
        Source: ParEGO (Knowles 2006) with the goals instead of their blend modelled (Daulton et al. 2020, qParEGO).

        Args:
            candidates: points of the space by id, at least one.
            running: what is being measured now.
            rng: of the blend and the draws.
            goals: how many there are, speed included.
        """
        sides = [self, *(self.of_goal(at) for at in range(goals - 1))]
        told = [side.told(running)[1] for side in sides]
        if not len(told[0].scores):
            return self.promising(candidates, running)
        columns = self.space.columns()
        rows = np.asarray([self.space.encode(self.space.places[config_id]) for config_id in candidates])
        known = np.stack([believed(one, columns) for one in told], axis=-1)
        known = known[feasible(told[0])] if feasible(told[0]).any() else known
        foreseen = [predicted(rows, one, columns) for one in told]
        means, spreads = (np.stack(of, axis=-1) for of in zip(*foreseen, strict=True))
        shares, width = rng.dirichlet(np.ones(goals)), np.maximum(np.ptp(known, axis=0), 1e-3)
        draws = means + spreads * rng.standard_normal((_DRAWS, *means.shape))
        scores, reached = (blended(of, shares, known.max(axis=0), width) for of in (draws, known))
        gain = np.maximum(scores - reached.max(), 0.0).mean(axis=0)
        return tuple(candidates.values())[int(np.argmax(gain * chance(rows, told[0], columns)))]

    def hope(self, config: EngineConfig) -> Hope | None:
        """What is expected of an untried point of the space; None as long as no setting may be recommended.

        Args:
            config: the point.
        """
        ranked = self.ranked()
        placed, told = self.told(())
        fit = {one: ranked[one] for one, seen in self.seen if seen.feasible and one in ranked}
        if not fit or not placed:
            return None
        best = max(fit, key=lambda one: fit[one])
        rows, foretold = self._rows([config]), self._foretold(placed, (), [config])
        (mean,), (deviation,) = predicted(rows, told, self.space.columns(), foretold)
        ratio = Estimate(float(mean) - fit[best], float(deviation))
        chance = 0.5 * math.erfc((math.log1p(TIE) - ratio.log) / ratio.deviation / math.sqrt(2))
        return Hope(config, best, ratio, chance)

    def ranked(self) -> dict[EngineConfig, float]:
        """Log score of every complete setting as it is believed to be without noise.

        A setting without a place in the space has no neighbours, and keeps what was measured.
        """
        scores = self.scores()
        placed, told = self.told(())
        means = dict(zip(placed, believed(told, self.space.columns(), self._foretold(placed, (), ())), strict=True))
        complete = [config for config, one in self.seen if one.value is not None]
        return {config: float(means.get(config, scores[config].log)) for config in complete}

    def compromises(self, among: Sequence[EngineConfig], goals: int) -> tuple[EngineConfig, ...]:
        """Complete settings with those first that no other is believed to beat at every goal.

        Args:
            among: the settings, the fastest first.
            goals: how many there are, speed included.

        Returns:
            All of them: the best at each goal, then what lies between, then what is beaten, the fastest first.
        """
        sides = [self.ranked(), *(self.of_goal(at).ranked() for at in range(goals - 1))]
        values = np.asarray([[side[config] for side in sides] for config in among]).reshape(len(among), goals)
        kept = np.flatnonzero(undominated(values)).tolist()
        first = [among[kept[at]] for at in ends_first(values[kept])]
        return (*first, *(config for config in among if config not in first))

    def told(self, running: Iterable[EngineConfig]) -> tuple[tuple[EngineConfig, ...], Told]:
        """The settings that have a score and a place, and everything as the surrogate takes it."""
        scores = self.scores()
        placed = tuple(config for config in scores if self.space.place(config) is not None)
        told = Told(
            measured=self._rows(placed),
            scores=np.asarray([scores[config].log for config in placed], dtype=np.float64),
            noises=np.asarray([scores[config].deviation for config in placed], dtype=np.float64),
            infeasible=self._rows(
                config for config, one in self.seen if any(value > 0 for _, value in one.constraints)
            ),
            pending=self._rows(running),
        )
        return placed, told

    def _foretold(
        self, measured: Sequence[EngineConfig], running: Sequence[EngineConfig], at: Sequence[EngineConfig]
    ) -> Foretold | None:
        """What is foretold of some settings; of those of which nothing is, the mean of the others."""
        if self.foresight is None:
            return None
        pending = [config for config in running if self.space.place(config) is not None]
        found = [[self.foresight(config) for config in of] for of in (measured, pending, at)]
        known = [one for of in found for one in of if one is not None]
        if not known:
            return None
        usual = np.mean(known, axis=0)
        filled = [[usual if one is None else one for one in of] for of in found]
        return Foretold(*(np.asarray(of, dtype=np.float64).reshape(len(of), len(usual)).T for of in filled))

    def _rows(self, configs: Iterable[EngineConfig]) -> NDArray[np.float64]:
        """Encoded places of the settings that have one, (n, D) float64; n may be 0."""
        places = [place for config in configs if (place := self.space.place(config)) is not None]
        rows = [self.space.encode(place) for place in places]
        return np.asarray(rows, dtype=np.float64).reshape(len(rows), self.space.columns()[-1].stop)
