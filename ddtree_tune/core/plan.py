"""What a sweep would run and about how long it takes, before any node is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtree_tune.core.spec import SweepSpec

TRIAL_OVERHEAD_S = 4.5
"""Start, gate and stop of a trial of the embedded engine, and what passes between two trials.

Measured, as the next two, in the sweep under tests/golden/results: two cores of an AMD EPYC."""
CELL_OVERHEAD_S = 1.4
"""Warm-up and drain of a cell of the embedded engine."""
CODING_S = 9.0
"""Coding evaluation of 25 problems on the embedded engine, at one concurrency."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a sweep. Times are estimates from the spec's windows, not measurements."""

    trials: int
    """Baselines, seeds and proposals of the search."""
    baselines: int
    seeds: int
    finals: int
    """Further measurements of the best settings and the baselines."""
    cells: int
    """Of one trial, repeats included."""
    trial_s: float
    final_s: float

    @property
    def node_s(self) -> float:
        """Node time of the whole sweep, in seconds."""
        return self.trials * self.trial_s + self.finals * self.final_s


def plan(spec: SweepSpec) -> Plan:
    """Count what a spec asks for."""
    cells = len(spec.load.cells()) * spec.load.repeats
    evaluations = len(spec.coding.concurrencies(max(spec.load.concurrency))) if spec.coding else 0
    final_s = TRIAL_OVERHEAD_S + cells * (spec.load.window_s + CELL_OVERHEAD_S)
    baselines = spec.baseline_configs()
    final = spec.search.final
    return Plan(
        trials=spec.search.trials,
        baselines=len(baselines),
        seeds=len({seed.config().config_id for seed in spec.seeds}),
        finals=final.rounds * (final.settings + len(baselines)) if final.settings else 0,
        cells=cells,
        trial_s=final_s + evaluations * CODING_S,
        final_s=final_s,
    )
