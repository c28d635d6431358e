"""Measures a whole search space on the built-in engine, several times, for the benchmark of the search.

    python benchmarks/search/measure.py --out surface.parquet --rounds 3 --jobs 16

Every measurement is a trial of the product from launch to stop, with its gate, its load and its
metrics; only coding is left out. Each worker has two cores, one for its server and one for the load,
so that as many trials run at once as the machine has pairs. A round measures every setting once, in
an order of its own, before the next round begins: what drifts hits all settings alike. The file is
written anew every few seconds, so that a run that is cut keeps what it has.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from measured import SPEC, keep, rows_of

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.record import Origin, Proposal
from ddtree_tune.core.space import Space
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.apart import LoaderProcess
from ddtree_tune.node.engine import NodeEngine
from ddtree_tune.node.fingerprint import fingerprint
from ddtree_tune.trial import World, run_trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue
    from typing import Any

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import Fingerprint, TrialRecord

STALL_S = 30.0
KEEP_EVERY_S = 5.0
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """One trial to measure."""

    order: int
    """Place in the order of starting."""
    round: int
    config: EngineConfig


class PinnedEngine(NodeEngine):
    """An engine whose server has a core of its own."""

    core = 0
    """Of the server; a child starts where its parent is."""

    def launch(self, config: EngineConfig) -> None:
        """See ``NodeEngine.launch``."""
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.core})
        try:
            super().launch(config)
        finally:
            os.sched_setaffinity(0, mine)


class ThisMachine:
    """``ports.Node`` and ``ports.Sink`` of a worker: asked once what it is, and nothing is written."""

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def fingerprint(self) -> Fingerprint:
        """What this machine is."""
        return self._fingerprint

    def now_s(self) -> float:
        """Seconds of a monotonic clock."""
        return time.monotonic()

    def utc(self) -> str:
        """The wall clock."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")

    def write(self, record: TrialRecord) -> None:
        """Rows are kept by whoever asked for the trial."""


class Worker:
    """Measures trials on a pair of cores."""

    here: Worker
    """The one of this process."""

    def __init__(self, spec: SweepSpec, cores: tuple[int, int]) -> None:
        self._spec = spec
        os.sched_setaffinity(0, {cores[1]})
        PinnedEngine.core = cores[0]
        self._loader = LoaderProcess(spec.load, seed=spec.search.seed, stall_s=STALL_S)
        self._machine = ThisMachine()

    @classmethod
    def begin(cls, spec: SweepSpec, pairs: Queue[tuple[int, int]]) -> None:
        """Take a pair of cores."""
        cls.here = cls(spec, pairs.get())

    def measure(self, job: Job) -> list[dict[str, Any]]:
        """One trial as rows."""
        dialect = BuiltinDialect()
        trial_id = f"{job.order:04d}-{job.config.config_id}"
        proposal = Proposal(trial_id, job.config, Origin.SEARCH, coding=False, round=job.round)
        engine = PinnedEngine(self._spec, dialect, name=trial_id)
        world = World(engine, self._loader, None, self._machine, self._machine)
        *_, end = run_trial(self._spec, dialect, proposal, world)
        if end.record is None:
            raise RuntimeError(f"a trial must end with its record, but got {end}")
        return rows_of(end.record, job.order)


def measure_here(job: Job) -> list[dict[str, Any]]:
    """Measure in this worker."""
    return Worker.here.measure(job)


def jobs_of(spec: SweepSpec, rounds: range, limit: int | None) -> Iterator[Job]:
    """Every setting once a round, the baselines too, each round in an order of its own."""
    points = list(Space.of(spec.space, BuiltinDialect()).points.values())
    if limit is not None:  # evenly over the space
        points = [points[at] for at in np.linspace(0, len(points) - 1, limit).round().astype(int)]
    configs = [*spec.baseline_configs(), *points]
    for number in rounds:
        order = np.random.default_rng([spec.search.seed, number]).permutation(len(configs))
        for place, at in enumerate(order.tolist()):
            yield Job(number * len(configs) + place, number, configs[at])


def core_pairs(jobs: int | None) -> list[tuple[int, int]]:
    """A core for the server and one for the load of each worker; two threads of one core stay together."""
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_siblings(core), core))
    pairs = list(zip(cores[::2], cores[1::2], strict=False))
    if jobs is not None and jobs > len(pairs):
        raise SystemExit(f"--jobs must be at most {len(pairs)}, two cores for each, but got {jobs}")
    return pairs[:jobs]


def _siblings(core: int) -> int:
    """The first thread of a core's physical one; the core itself where the system does not say."""
    listed = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    return int(re.split(r"[,-]", listed.read_text())[0]) if listed.exists() else core


def measure_all(spec: SweepSpec, jobs: list[Job], pairs: list[tuple[int, int]], out: Path, budget_s: float) -> None:
    """Measure as many jobs as the time allows, in their order."""
    began = kept = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Manager().Queue()
    for pair in pairs:
        queue.put(pair)
    rows: list[dict[str, Any]] = []
    done = 0
    try:
        with ProcessPoolExecutor(len(pairs), spawn, Worker.begin, (spec, queue)) as pool:
            for future in as_completed([pool.submit(measure_here, job) for job in jobs]):
                if not future.cancelled():
                    rows += future.result()
                    done += 1
                now = time.monotonic()
                if now - kept > KEEP_EVERY_S:
                    keep(rows, out)
                    kept = now
                    print(f"{now - began:5.0f} s: {done} of {len(jobs)} trials", flush=True)
                if now - began > budget_s:
                    pool.shutdown(wait=False, cancel_futures=True)
    finally:
        keep(rows, out)
    print(f"{time.monotonic() - began:.0f} s: {done} of {len(jobs)} trials, {len(rows)} rows in {out}")


def main() -> None:
    """Measure."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--out", type=Path, required=True, help="Parquet file; replaced")
    command.add_argument("--rounds", type=int, default=3, help="measurements of every setting (default: 3)")
    command.add_argument("--first-round", type=int, default=0, help="where an earlier run ended (default: 0)")
    command.add_argument("--jobs", type=int, help="trials at once, two cores each (default: all cores)")
    command.add_argument("--budget-s", type=float, default=1e9, help="start no trial after so many seconds")
    command.add_argument(
        "--known", type=Path, nargs="*", default=(), help="files of earlier runs: their trials stay out"
    )
    command.add_argument("--limit", type=int, help="so many settings instead of all, beside the baselines")
    asked = command.parse_args()
    os.environ |= dict.fromkeys(THREADS, "1")
    spec = SweepSpec.parse(SPEC, "measured.SPEC")
    rounds = range(asked.first_round, asked.first_round + asked.rounds)
    known = {order for path in asked.known for order in pq.read_table(path, columns=["order"])["order"].to_pylist()}
    jobs = [job for job in jobs_of(spec, rounds, asked.limit) if job.order not in known]
    measure_all(spec, jobs, core_pairs(asked.jobs), asked.out, asked.budget_s)


if __name__ == "__main__":
    main()
