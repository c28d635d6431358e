"""How good is the search after a dozen trials? Samplers of the study on surfaces with a known best.

``python benchmarks/search/bench.py [SWEEPS]`` prints the tables of README.md. Nothing is served:
a trial's speed comes from a formula plus noise, everything else is the study that sweeps use.

The surface ``pair`` is a small target and drafter measured on a CPU: acceptance by budget, topk,
window and context, times a step that costs ``a + b * budget`` at batch 1, 4 and 8. The surfaces
``machines`` change what is particular to it: the price of a node, where the window is best, and
what a wider topk does.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.metrics import CellMetrics, Summary
from ddtree_tune.core.record import CellResult, Origin, TrialRecord, TrialStatus
from ddtree_tune.core.space import Space
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.search import Study

if TYPE_CHECKING:
    from ddtree_tune.core.engine import EngineConfig

NOISE = 0.025
"""Deviation of one log score."""
OCTAVES = (2.0, 3.0, 4.0, 5.0, 6.0)
"""Budgets 4 to 64, where acceptance was measured."""
BY_TOPK = {
    1: (2.83, 3.24, 3.33, 3.33, 3.33),
    2: (3.01, 3.66, 4.09, 4.40, 4.65),
    4: (3.02, 3.72, 4.22, 4.71, 5.10),
    8: (3.02, 3.76, 4.30, 4.80, 5.30),
}
"""Acceptance at short context with all of it in the window."""
BY_WINDOW = {
    "short": {
        None: (3.02, 3.72, 4.22, 4.71, 5.10),
        64: (2.95, 3.61, 4.09, 4.54, 4.90),
        256: (3.02, 3.72, 4.22, 4.71, 5.10),
    },
    "long": {
        None: (2.35, 2.75, 3.05, 3.28, 3.51),
        64: (2.36, 2.75, 3.15, 3.42, 3.66),
        256: (2.49, 3.03, 3.39, 3.74, 4.02),
    },
}
"""Acceptance at topk 4 by context and window."""
STEP_MS = {1: (4.95, 0.056, 2.31), 4: (8.5, 0.33, 4.22), 8: (17.0, 0.9, 6.36)}
"""Batch: milliseconds of a step without nodes, of each node, and of a step without speculation."""
SPACE = "{budget: [4, 6, 8, 10, 12, 16, 20, 24, 32], topk: [1, 2, 4, 8], window: [64, 128, 256, none]}"
SEEDS = """
  - {budget: 8, topk: 4, window: 256}
  - {budget: 8, topk: 4, window: none}
  - {budget: 16, topk: 4, window: 256}
  - {budget: 4, topk: 4, window: 256}
  - {budget: 12, topk: 6, window: 256}
"""


@dataclass(frozen=True)
class Machine:
    """What differs between surfaces."""

    node_price: float = 1.0
    """Factor on what each node costs."""
    window_best: float | None = None
    """Octave of the best window; None is the pair's own table."""
    window_bend: float = 0.0
    """Log speed lost per squared octave away from it."""
    topk_best: float = 0.0
    topk_bend: float = 0.0

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Machine:
        """Some other machine."""
        return cls(
            float(np.exp(rng.uniform(math.log(0.15), math.log(4.0)))),
            float(rng.uniform(6, 9)),
            float(rng.uniform(0, 0.04)),
            float(rng.uniform(0, 4)),
            float(rng.uniform(0, 0.03)),
        )

    def log_score(self, config: EngineConfig) -> float:
        """Logarithm of the true speed-up over no speculation."""
        if config.budget is None or config.topk is None:
            return 0.0
        budget, topk = math.log2(config.budget), math.log2(config.topk)
        by_topk = [_curve(BY_TOPK[k], budget) for k in BY_TOPK]
        accept = float(np.interp(topk, [math.log2(k) for k in BY_TOPK], by_topk))
        bend = self.topk_bend * (topk - self.topk_best) ** 2
        if self.window_best is not None:
            bend += self.window_bend * (math.log2(config.window or 512) - self.window_best) ** 2
        logs = []
        for table, (fixed, node, plain) in itertools.product(BY_WINDOW.values(), STEP_MS.values()):
            window = _windowed(table, None if self.window_best is not None else config.window, budget)
            gained = accept + window - _curve(BY_TOPK[4], budget)
            logs.append(gained + math.log(plain) - math.log(fixed + node * self.node_price * config.budget))
        return float(np.mean(logs)) - bend


def _curve(values: tuple[float, ...], octave: float) -> float:
    return float(np.interp(octave, OCTAVES, np.log(values)))


def _windowed(table: dict[int | None, tuple[float, ...]], window: int | None, octave: float) -> float:
    if window == 128:  # between the measured ones
        return (_curve(table[64], octave) + _curve(table[256], octave)) / 2
    return _curve(table[window], octave)


def sweep_spec(sampler: str, seed: int, trials: int, *, seeded: bool) -> SweepSpec:
    """The spec of one sweep of the benchmark."""
    seeds = f"seeds:{SEEDS}" if seeded else ""
    return SweepSpec.parse(
        f"name: bench\nspace: {SPACE}\n{seeds}\nload: {{contexts: [60], concurrency: [1]}}\n"
        f"search: {{sampler: {sampler}, seed: {seed}, trials: {trials}, final: {{settings: 0}}}}",
        "bench",
    )


def sweep(spec: SweepSpec, machine: Machine, seed: int) -> list[tuple[float, float]]:
    """Run a sweep; (true, measured) log score of each trial that was not a baseline, in order."""
    rng = np.random.default_rng([seed, 1])
    study = Study(spec, BuiltinDialect())
    seen = []
    while (proposal := study.ask()) is not None:
        true = machine.log_score(proposal.config)
        measured = true + NOISE * float(rng.standard_normal())
        cell = _cell(spec, 100 * math.exp(measured))
        study.tell(TrialRecord(spec.name, proposal, TrialStatus.COMPLETE, "", "", (), cells=(CellResult(cell, ()),)))
        if proposal.origin is not Origin.BASELINE:
            seen.append((true, measured))
    return seen


def _cell(spec: SweepSpec, tps: float) -> CellMetrics:
    blank = Summary(0, None, None, None, None)
    known = {
        "cell_id": spec.load.cells()[0].cell_id,
        "output_tps": tps,
        "flags": (),
        **dict.fromkeys(("ttft_s", "icl_s", "itl_s", "tpot_s", "e2e_s"), blank),
    }
    return CellMetrics(**{name: known.get(name) for name in CellMetrics.__dataclass_fields__})


def table(sweeps: int, *, seeded: bool) -> None:
    """Print one table: every sampler on both families of surfaces."""
    space = Space.of(sweep_spec("grid", 0, 12, seeded=seeded).space, BuiltinDialect())
    print("| surface | sampler | picked | best of two | found | 2 % | 1 % |\n|---|---|---|---|---|---|---|")
    for family, sampler in itertools.product(("pair", "machines"), ("surrogate", "tpe", "random", "grid")):
        rows = []
        for seed in range(sweeps):
            machine = Machine() if family == "pair" else Machine.drawn(np.random.default_rng([seed, 0]))
            seen = sweep(sweep_spec(sampler, seed, 40, seeded=seeded), machine, seed)
            best = max(machine.log_score(config) for config in space.points.values())
            best = max(best, *(true for true, _ in seen))
            dozen = sorted(seen[:10], key=lambda pair: -pair[1])
            within = [
                2 + next((n for n, (true, _) in enumerate(seen, 1) if true > best - gap), 99) for gap in (0.02, 0.01)
            ]
            picked = (dozen[0][0], max(true for true, _ in dozen[:2]), max(true for true, _ in dozen))
            rows.append([*(math.exp(true - best) for true in picked), *within])
        median, tenth = np.median(rows, axis=0), np.quantile(rows, 0.1, axis=0)
        cells = [f"{median[i]:.3f} ({tenth[i]:.3f})" for i in range(3)]
        cells += [f"{median[i]:.0f}" if median[i] <= 40 else "> 40" for i in (3, 4)]
        print(f"| {family} | {sampler} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for with_seeds in (True, False):
        print(f"\n{'With the five seeds' if with_seeds else 'Without seeds'}, {count} sweeps each:\n")
        table(count, seeded=with_seeds)
