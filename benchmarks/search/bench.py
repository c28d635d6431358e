"""How good is the search after a dozen trials? The study on surfaces with a known best.

``python benchmarks/search/bench.py [SWEEPS] [PART…]`` prints the tables of README.md: ``picking``,
``samplers``, ``rungs`` and ``prior``, all of them when no part is named. Asking, telling, deduplication, stopping
and order are the study that sweeps use; `surfaces` says what a trial measures.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from others import points_of
from proof import SURFACES, ours, surface_of
from surfaces import CONTEXTS, FIRST, SHAPES, STEP_MS, Machine, Replay, measure

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.space import Space
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.search import Study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.foresight import Replayed

FAMILIES = ("pair", "machines", "cliffs")
TRIALS = 24
SPACE = "{budget: [4, 6, 8, 10, 12, 16, 20, 24, 32], topk: [1, 2, 4, 8], window: [64, 128, 256, none]}"
SEEDS = """
  - {budget: 8, topk: 4, window: 256}
  - {budget: 8, topk: 4, window: none}
  - {budget: 16, topk: 4, window: 256}
  - {budget: 4, topk: 4, window: 256}
  - {budget: 12, topk: 6, window: 256}
"""
NEVER = 99
DOZEN = 10
"""Trials beside the baselines after which sweeps are compared: a dozen with them."""


@dataclass(frozen=True)
class Swept:
    """One sweep as the tables need it; gaps are true log speeds below the best."""

    measured: list[float]
    """Gap of each trial that was not a baseline, in order."""
    luck: list[float]
    """Gap of the setting with the best measurement, after each of them."""
    recommended: list[float]
    """Gap of the setting that is believed to be the best, after each of them."""
    cells: int
    """Cells that were measured, baselines aside."""
    stopped: int
    best_stopped: bool
    """Whether the truly best setting was stopped."""


def sweep_spec(sampler: str, seed: int, trials: int, *, seeded: bool = False, rungs: bool = False) -> SweepSpec:
    """The spec of one sweep of the benchmark."""
    seeds = f"seeds:{SEEDS}" if seeded else ""
    contexts, users = ({shape[at] for shape in FIRST} for at in (0, 1))
    first = f", first: {{contexts: {sorted(contexts)}, concurrency: {sorted(users)}}}" if rungs else ""
    return SweepSpec.parse(
        f"name: bench\nspace: {SPACE}\n{seeds}\n"
        f"load: {{contexts: {list(CONTEXTS)}, concurrency: {list(STEP_MS)}{first}}}\n"
        f"search: {{sampler: {sampler}, seed: {seed}, trials: {trials}, final: {{settings: 0}}}}",
        "bench",
    )


def sweep(
    spec: SweepSpec, machine: Machine, seed: int, replayed: Replayed | None = None, *, watched: bool = True
) -> Swept:
    """Run a sweep; what is believed is asked after every trial if it is watched, else after a dozen and at the end."""
    rng = np.random.default_rng([seed, 1])
    points = Space.of(spec.space, BuiltinDialect()).points.values()
    seeds = [BuiltinDialect().canonical(one.config()) for one in spec.seeds]
    best = max(machine.log_score(config) for config in (*points, *seeds))
    study = Study(spec, BuiltinDialect(), replayed=replayed)
    gaps, luck, recommended, values = [], [], [], {}
    cells = stopped = 0
    best_stopped = False
    first = len(FIRST) if spec.load.first else 0
    while (proposal := study.ask()) is not None:
        record = measure(machine, proposal, first, rng)
        study.tell(record)
        if proposal.origin is Origin.BASELINE:
            continue
        gap = best - machine.log_score(proposal.config)
        if record.status is TrialStatus.COMPLETE:
            values[gap] = float(np.mean([math.log(one.metrics.output_tps) for one in record.cells]))
        if record.status is TrialStatus.STOPPED:
            stopped += 1
            best_stopped |= gap < 1e-9
        cells += len(record.cells)
        gaps.append(gap)
        luck.append(max(values, key=values.get) if values else math.inf)
        asked = watched or len(gaps) == DOZEN or len(gaps) == spec.search.trials - 2
        ranking = study.ranking() if asked else ()
        recommended.append(best - machine.log_score(ranking[0]) if ranking else math.inf)
    return Swept(gaps, luck, recommended, cells, stopped, best_stopped)


def reached(gaps: Sequence[float], gap: float) -> int:
    """Trials, two baselines included, until a gap that small; NEVER if not."""
    return 2 + next((n for n, one in enumerate(gaps, 1) if one < gap), NEVER)


def cells_of(swept: Sequence[Swept]) -> list[str]:
    """Median and lowest tenth of what is picked after a dozen trials, then trials to 2 % and 1 %."""
    rows = []
    for one in swept:
        found = min(one.measured[:DOZEN])
        picked = (one.luck[DOZEN - 1], one.recommended[DOZEN - 1], found)
        trials = [reached(gaps, gap) for gaps in (one.measured, one.recommended) for gap in (0.02, 0.01)]
        rows.append([*(math.exp(-gap) for gap in picked), *trials])
    median, tenth = np.median(rows, axis=0), np.quantile(rows, 0.1, axis=0)
    ratios = [f"{median[i]:.3f} ({tenth[i]:.3f})" for i in range(3)]
    return ratios + [f"{median[i]:.0f}" if median[i] <= TRIALS else f"> {TRIALS}" for i in range(3, 7)]


HEAD = "picked | believed | found | 2 % | 1 % | 2 % believed | 1 % believed |"


def samplers(sweeps: int) -> None:
    """Every sampler on every family, with and without seeds."""
    for seeded in (True, False):
        print(f"\n{'With the five seeds' if seeded else 'Without seeds'}, {sweeps} sweeps each:\n")
        print(f"| surface | sampler | {HEAD}\n|---|---|{'---|' * 7}")
        for family, sampler in itertools.product(FAMILIES, ("surrogate", "tpe", "random", "grid")):
            swept = [
                sweep(
                    sweep_spec(sampler, seed, TRIALS, seeded=seeded),
                    Machine.drawn(family, seed),
                    seed,
                    watched=sampler == "surrogate",
                )
                for seed in range(sweeps)
            ]
            print(f"| {family} | {sampler} | {' | '.join(cells_of(swept))} |", flush=True)


def rungs(sweeps: int) -> None:
    """Stopping after two of six cells, beside measuring every trial whole."""
    print(f"\nRungs: {len(FIRST)} of {len(SHAPES)} cells first, {TRIALS} trials, {sweeps} sweeps each:\n")
    print("| surface | rungs | believed | cells | stopped | best stopped |\n|---|---|---|---|---|---|")
    for family, on in itertools.product(FAMILIES, (False, True)):
        swept = [
            sweep(sweep_spec("surrogate", seed, TRIALS, rungs=on), Machine.drawn(family, seed), seed, watched=False)
            for seed in range(sweeps)
        ]
        ratios = [math.exp(-next(gap for gap in reversed(one.recommended) if gap < math.inf)) for one in swept]
        print(
            f"| {family} | {'yes' if on else 'no'} | {np.median(ratios):.3f} ({np.quantile(ratios, 0.1):.3f}) "
            f"| {np.mean([one.cells for one in swept]):.0f} | {np.mean([one.stopped for one in swept]):.1f} "
            f"| {sum(one.best_stopped for one in swept)} of {sweeps} |",
            flush=True,
        )


PRIORS: dict[str, tuple[int | None, ...]] = {
    "none": (),
    "one window": (256,),
    "every window": (64, 128, 256, None),
    "wrong": (64, 128, 256, None),
}
"""Windows that are traced; the wrong traces say the opposite of what is true."""


def prior(sweeps: int) -> None:
    """No trace, right ones, and ones that say the opposite of what is true."""
    print(f"\nWith traces, no seeds, {sweeps} sweeps each:\n")
    print(f"| surface | traces | {HEAD}\n|---|---|{'---|' * 7}")
    for family, (kind, windows) in itertools.product(FAMILIES, PRIORS.items()):
        swept = []
        for seed in range(sweeps):
            machine = Machine.drawn(family, seed)
            replayed = Replay(machine, seed, kind == "wrong").replayed(*windows) if windows else None
            swept.append(sweep(sweep_spec("surrogate", seed, TRIALS), machine, seed, replayed))
        print(f"| {family} | {kind} | {' | '.join(cells_of(swept))} |", flush=True)


def picking(sweeps: int) -> None:
    """What to run after a dozen trials: what was measured best, what is believed to be, or the better of the two."""
    print(f"\nAfter {DOZEN + 2} trials, {sweeps} sweeps each:\n")
    print("| surface | picked | believed | better of the two | best two believed | found | the same |")
    print("|---|---|---|---|---|---|---|")
    for name in SURFACES:
        rows, same = [], 0
        for seed in range(sweeps):
            surface = surface_of(name, seed, stops=False)
            best = max(surface.log_score(config) for config in points_of(surface.spec))
            study, rng, values = ours(surface, seed), np.random.default_rng([seed, 1]), {}
            for _ in range(DOZEN + 2):
                proposal = study.ask()
                record = surface.measure(proposal, rng)
                study.tell(record)
                if proposal.origin is not Origin.BASELINE and record.status is TrialStatus.COMPLETE:
                    tps = [one.metrics.output_tps for one in record.cells]
                    values[proposal.config] = float(np.mean(np.log(tps)))
            picked, believed = max(values, key=values.get), study.recommended()
            same += picked == believed
            logs = [surface.log_score(config) for config in (picked, believed)]
            two = max(map(surface.log_score, study.ranking()[:2]))
            rows.append([*logs, max(logs), two, max(map(surface.log_score, values))] - np.float64(best))
        ratios = np.exp(rows)
        middle, tenth = np.median(ratios, axis=0), np.quantile(ratios, 0.1, axis=0)
        words = " | ".join(f"{one:.3f} ({low:.3f})" for one, low in zip(middle, tenth, strict=True))
        print(f"| {name} | {words} | {same} of {sweeps} |", flush=True)


PARTS = {"picking": picking, "samplers": samplers, "rungs": rungs, "prior": prior}

if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for part in sys.argv[2:] or PARTS:
        PARTS[part](count)
