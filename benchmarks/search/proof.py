"""How many trials until the recommended setting is as good as the best? Ours beside what others have.

    python benchmarks/search/proof.py --seeds 50

runs every search on every surface, as far as ``proof.parquet`` does not hold it yet, prints the table
of README.md and draws ``proof.svg``. A row of the file is one sweep: how far the recommended setting
is from the best after each trial, and the node time that was spent until then. ``gp`` needs torch and
scipy, and is left out where they are missing.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import optuna
from measured import Measured
from others import AsItComes, Listed, Optuna, RayOptuna, points_of, sizes_of
from proof_table import Kept, Sweep, plot, table
from surfaces import CONTEXTS, FIRST, STEP_MS, Formula, Machine, Replay

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.foresight import Replayed
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.spec import FirstSpec, SweepSpec
from ddtree_tune.node.replay_file import load_trace, write_trace
from ddtree_tune.node.search import Study
from ddtree_tune.tracing import trace_load

if TYPE_CHECKING:
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import Proposal, TrialRecord

HERE = Path(__file__).parent
TRACES = HERE.parents[1] / "results" / "search_traces"
SURFACES = ("measured", "pair", "machines", "cliffs")
OTHERS = ("own means",)
"""Surfaces that are run only when they are asked for."""
LEAST, MOST = 24, 60
"""Trials of every sweep, and of one whose recommendation is not within CLOSE by then."""
CLOSE = 0.01
FORMULA = f"""
name: proof
space: {{budget: [4, 6, 8, 10, 12, 16, 20, 24, 32], topk: [1, 2, 4, 8], window: [64, 128, 256, none]}}
load: {{contexts: {list(CONTEXTS)}, concurrency: {list(STEP_MS)}}}
search: {{final: {{settings: 0}}}}
"""


class Surface(Protocol):
    """Where a search searches."""

    @property
    def spec(self) -> SweepSpec:
        """Its space and its load."""
        ...

    def log_score(self, config: EngineConfig) -> float:
        """What is true of a setting."""
        ...

    def measure(self, proposal: Proposal, rng: np.random.Generator) -> TrialRecord:
        """A trial."""
        ...


class Search(Protocol):
    """What proposes trials and recommends a setting."""

    def ask(self) -> Proposal | None:
        """The next trial; None if there is none."""
        ...

    def tell(self, record: TrialRecord) -> None:
        """What became of it."""
        ...

    def recommended(self) -> EngineConfig | None:
        """What it would run; None as long as it knows nothing."""
        ...


class Ours(Study):
    """The study that sweeps use."""

    def recommended(self) -> EngineConfig | None:
        """The setting that is believed to be the best."""
        return next(iter(self.ranking()), None)


Build: TypeAlias = Callable[[Surface, int], Search]


@functools.cache
def measured(*, pooled: bool, stops: bool) -> Measured:
    """The surface that was measured."""
    whole = Measured.read(*sorted(HERE.glob("surface*.parquet")), pooled=pooled)
    users = whole.spec.load.concurrency
    first = FirstSpec(contexts=(min(whole.spec.load.contexts),), concurrency=(min(users), max(users)))
    return whole.with_first(first) if stops else whole


def surface_of(name: str, seed: int, *, stops: bool) -> Surface:
    """The surface of a sweep; of ``machines`` and ``cliffs`` another one for every seed.

    Args:
        name: of the surface; ``own means`` is the measured one without what settings say of each other.
        seed: of the sweep.
        stops: whether some cells come first.
    """
    if name in {"measured", "own means"}:
        return measured(pooled=name == "measured", stops=stops)
    spec = SweepSpec.parse(FORMULA, "proof.FORMULA")
    contexts, users = (tuple(sorted({shape[at] for shape in FIRST})) for at in (0, 1))
    first = FirstSpec(contexts=contexts, concurrency=users) if stops else None
    return Formula(
        spec.model_copy(update={"load": spec.load.model_copy(update={"first": first})}), Machine.drawn(name, seed)
    )


def replayed(surface: Surface, seed: int, *windows: int | None) -> Replayed:
    """Traces: of the built-in engine where it was measured, else what the formula would leave."""
    if isinstance(surface, Formula):
        return Replay(surface.machine, seed).replayed(*windows)
    return _traced(windows)


@functools.cache
def _traced(windows: tuple[int | None, ...]) -> Replayed:
    spec = measured(pooled=True, stops=False).spec
    TRACES.mkdir(parents=True, exist_ok=True)
    traces = []
    for window in windows:
        kept = TRACES / f"{window}.jsonl.gz"
        if not kept.exists():
            write_trace(kept, trace_load(spec, window=window, topk=8, requests=4))
        traces.append(load_trace(kept))
    return Replayed.of(traces, points_of(spec))


def ours(surface: Surface, seed: int, *windows: int | None) -> Search:
    """The default of a sweep, with traces of some windows."""
    search = surface.spec.search.model_copy(update={"seed": seed, "trials": MOST})
    spec = surface.spec.model_copy(update={"search": search})
    return Ours(spec, BuiltinDialect(), replayed=replayed(surface, seed, *windows) if windows else None)


def in_turn(surface: Surface, seed: int, *, shuffled: bool) -> Search:
    """Every setting once."""
    points = points_of(surface.spec)
    order = np.random.default_rng([seed, 3]).permutation(len(points)) if shuffled else range(len(points))
    return AsItComes(surface.spec, Listed(points[at] for at in order))


def by_optuna(surface: Surface, seed: int, kind: type[optuna.samplers.BaseSampler]) -> Search:
    """Optuna with one of its samplers, as it comes."""
    return AsItComes(surface.spec, Optuna(sizes_of(surface.spec), kind(seed=seed)))


def by_ray(surface: Surface, seed: int) -> Search:
    """Ray's wrapper around Optuna, as it comes."""
    return AsItComes(surface.spec, RayOptuna(sizes_of(surface.spec), seed))


SEARCHES: dict[str, Build] = {
    "random": functools.partial(in_turn, shuffled=True),
    "grid order": functools.partial(in_turn, shuffled=False),
    "Optuna TPE": functools.partial(by_optuna, kind=optuna.samplers.TPESampler),
    "Optuna GP": functools.partial(by_optuna, kind=optuna.samplers.GPSampler),
    "Ray OptunaSearch": by_ray,
    "ours": ours,
    "ours, first cells": ours,
    "ours, one trace": lambda surface, seed: ours(surface, seed, 256),
    "ours, traces": lambda surface, seed: ours(surface, seed, 64, 128, 256, None),
}


def sweep(name: str, search: str, seed: int) -> Sweep:
    """Run one search on one surface until nothing more is to be learned of it."""
    surface = surface_of(name, seed, stops=search == "ours, first cells")
    asked = SEARCHES[search](surface, seed)
    rng = np.random.default_rng([seed, 1])
    best = max(surface.log_score(config) for config in points_of(surface.spec))
    gaps: list[float] = []
    minutes: list[float] = []
    failed = 0
    while len(gaps) < MOST and (len(gaps) < LEAST or min(gaps) > CLOSE) and (proposal := asked.ask()) is not None:
        record = surface.measure(proposal, rng)
        asked.tell(record)
        failed += record.status is TrialStatus.FAILED
        config = asked.recommended()
        gaps.append(math.inf if config is None else best - surface.log_score(config))
        minutes.append((minutes[-1] if minutes else 0.0) + record.seconds / 60)
    return Sweep(name, search, seed, gaps, minutes, failed)


def main() -> None:
    """Run what is missing, then show all."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--seeds", type=int, default=50)
    command.add_argument("--surfaces", nargs="+", choices=(*SURFACES, *OTHERS), default=SURFACES)
    command.add_argument("--searches", nargs="+", choices=tuple(SEARCHES), default=tuple(SEARCHES))
    command.add_argument("--out", type=Path, default=HERE / "proof.parquet")
    asked = command.parse_args()
    kept = Kept(asked.out)
    gp = all(map(find_spec, ("torch", "scipy")))
    began = time.perf_counter()
    for seed in range(asked.seeds):
        for name in asked.surfaces:
            for search in asked.searches:
                if not kept.has(name, search, seed) and (gp or search != "Optuna GP"):
                    kept.add(sweep(name, search, seed))
        kept.write()
        print(f"{time.perf_counter() - began:5.0f} s: seed {seed}", flush=True)
    order = {name: at for at, name in enumerate((*SURFACES, *OTHERS, *SEARCHES))}
    sweeps = sorted(kept.sweeps, key=lambda one: (order[one.surface], order[one.search], one.seed))
    print("\n".join(table(sweeps)))
    plot(sweeps, asked.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
