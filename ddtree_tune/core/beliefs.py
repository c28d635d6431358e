"""What the search believes of settings, from everything that trials said so far.

A complete trial tells a score, with the noise of its own intervals and of whole trials. One that
was stopped tells the score of its first cells, from which the matrix is guessed as complete trials
did beside their own first cells, and is believed so much less. A failure and a broken limit tell
where not to go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ddtree_tune.core.noise import DRIFT
from ddtree_tune.core.objective import Verdict
from ddtree_tune.core.rungs import Rest
from ddtree_tune.core.step_time import Estimate
from ddtree_tune.core.surrogate import Foretold, Told, believed, promising

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.objective import Observation
    from ddtree_tune.core.space import Space


class Foresight(Protocol):
    """Foretells log scores."""

    def __call__(self, config: EngineConfig) -> Estimate | None:
        """The log score of a setting; None where nothing is known of it."""
        ...


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Settings with what was seen of them."""

    space: Space
    seen: Sequence[tuple[EngineConfig, Observation]]
    """Of searched settings and seeds; baselines and finals aside."""
    drift: float = DRIFT
    """Deviation of a whole trial's log score."""
    foresight: Foresight | None = None

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
        placed, told = self._told(running)
        configs = tuple(candidates.values())
        rows = np.asarray([self.space.encode(self.space.places[config_id]) for config_id in candidates])
        foretold = self._foretold(placed, running, configs)
        return configs[promising(rows, told, self.space.columns(), foretold)]

    def ranked(self) -> dict[EngineConfig, float]:
        """Log score of every complete setting as it is believed to be without noise.

        A setting without a place in the space has no neighbours, and keeps what was measured.
        """
        scores = self.scores()
        placed, told = self._told(())
        means = dict(zip(placed, believed(told, self.space.columns(), self._foretold(placed, (), ())), strict=True))
        complete = [config for config, one in self.seen if one.value is not None]
        return {config: float(means.get(config, scores[config].log)) for config in complete}

    def _told(self, running: Iterable[EngineConfig]) -> tuple[tuple[EngineConfig, ...], Told]:
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
        """What the prior says of some settings; of those that it does not know, the mean of the others.

        How unsure it says to be is left aside: its errors go together over neighbouring widths, and
        a trial at one of them tells of all. Taken as the errors of single settings they draw the
        search to the ends of the space.
        """
        if self.foresight is None:
            return None
        pending = [config for config in running if self.space.place(config) is not None]
        found = [[self.foresight(config) for config in of] for of in (measured, pending, at)]
        known = [one.log for of in found for one in of if one is not None]
        if not known:
            return None
        usual = float(np.mean(known))
        filled = [[usual if one is None else one.log for one in of] for of in found]
        return Foretold(*(np.asarray(of, dtype=np.float64) for of in filled))

    def _rows(self, configs: Iterable[EngineConfig]) -> NDArray[np.float64]:
        """Encoded places of the settings that have one, (n, D) float64; n may be 0."""
        places = [place for config in configs if (place := self.space.place(config)) is not None]
        rows = [self.space.encode(place) for place in places]
        return np.asarray(rows, dtype=np.float64).reshape(len(rows), self.space.columns()[-1].stop)
