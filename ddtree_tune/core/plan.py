"""What a sweep would run and about how long it takes, before any node is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.workload import Cell


@dataclass(frozen=True, slots=True)
class _Costs:
    """What a trial costs beside its windows."""

    trial_s: float
    """Start, gate and stop, and what passes between two trials."""
    loaded_per_s: float
    """Bytes of weights per second."""
    cell_s: float
    """Start and end of a cell."""
    prefill_tps: float
    """Prompt tokens per second of a full batch."""
    token_s: float
    """Per output token of one request, at the largest batch."""
    graded_s: float
    """Per graded program."""


_BUILTIN = _Costs(4.5, 1e9, 1.4, float("inf"), 0.0, 0.36)
"""Measured in the sweep under tests/golden/results: two cores of an AMD EPYC; 25 problems took 9 s."""
_SGLANG = _Costs(120.0, 2.5e9, 2.0, 20_000.0, 0.02, 1.0)
"""Orders of magnitude, not measurements. The start: 45 to 140 s of stock SGLang 0.5.17 with a tiny pair on an H200;
the disk: 232 s for the 554 GiB of Kimi K2.6, as a user of eight B300 reported; the rest is assumed."""
_PROBLEMS = {"five_kinds": 25, "general": 55, "short": 5, "humaneval": 164}
_UNKNOWN_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a sweep. Times are estimates from the spec, not measurements."""

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
    saved_s: float
    """Node time that stopping saves at most: if every proposal of the search ended after its first cells,
    without coding. It is not taken off ``node_s``."""
    measured: bool
    """Whether the costs beside the windows were measured for this engine."""

    @property
    def node_s(self) -> float:
        """Node time of the whole sweep, in seconds."""
        return self.trials * self.trial_s + self.finals * self.final_s


def plan(spec: SweepSpec, points: int | None = None) -> Plan:
    """Count what a spec asks for.

    Args:
        spec: the sweep.
        points: distinct settings of its space, where that is known: there are no more proposals than that.
    """
    costs = _BUILTIN if spec.engine.kind == "builtin" else _SGLANG
    cells = spec.load.cells()
    evaluations = len(spec.coding.concurrencies(max(spec.load.concurrency))) if spec.coding else 0
    start_s = costs.trial_s + (spec.engine.model_gib or 0.0) * 2**30 / costs.loaded_per_s
    final_s = start_s + spec.load.repeats * sum(_cell_s(cell, costs) for cell in cells)
    baselines = spec.baseline_configs()
    seeds = len({seed.config().config_id for seed in spec.seeds})
    final = spec.search.final
    trials = spec.search.trials
    if points is not None:
        trials = min(trials, len(baselines) + max(points, seeds))
    first = {cell.cell_id for cell in spec.load.first_cells()}
    rest_s = spec.load.repeats * sum(_cell_s(cell, costs) for cell in cells if cell.cell_id not in first)
    coding_s = evaluations * _coding_s(spec, costs)
    return Plan(
        trials=trials,
        baselines=len(baselines),
        seeds=seeds,
        finals=final.rounds * (final.settings + len(baselines)) if final.settings else 0,
        cells=len(cells) * spec.load.repeats,
        trial_s=final_s + coding_s,
        final_s=final_s,
        saved_s=max(0, trials - len(baselines) - seeds) * (rest_s + coding_s) if first else 0.0,
        measured=costs is _BUILTIN,
    )


def _cell_s(cell: Cell, costs: _Costs) -> float:
    """A warm-up wave, the window, and the drain: two waves of the whole batch beside the window."""
    wave_s = (cell.concurrency or 1) * cell.context / costs.prefill_tps + cell.output_tokens * costs.token_s
    return costs.cell_s + cell.window_s + 2 * wave_s


def _coding_s(spec: SweepSpec, costs: _Costs) -> float:
    """Asking and grading all problems once; a reply is taken to be half as long as it may be."""
    coding = spec.coding
    if coding is None:
        return 0.0
    count = (coding.limit or _PROBLEMS.get(coding.problems, _UNKNOWN_PROBLEMS)) * coding.samples
    waves = -(-count // max(coding.concurrency or spec.load.concurrency))
    return count * costs.graded_s + waves * coding.max_tokens / 2 * costs.token_s
