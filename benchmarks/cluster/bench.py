"""What the driver costs per trial with 32 nodes: the real Tuner, searcher, study, store and trial over scripted ports.

Run from the repository's root: ``python -m benchmarks.cluster.bench [--nodes 32] [--seconds 20] [--rounds 3]``.

Every node is a Ray worker of this machine that holds one ``sweep_node``. Its engine and its load are
scripted: a cell sleeps for a known time and returns requests of known truth. Everything else is what a
sweep runs: one step and one message to the driver per event, records through the store's actor, the
display, the gauges, the search. Not in it: Serve's deployment and an engine's start, which are a node's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import ray

from ddtree_tune.cluster import sweep, trial
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.progress import Progress
from ddtree_tune.node.search import Study
from ddtree_tune.node.store import Store
from ddtree_tune.run import dialect_of
from ddtree_tune.trial import World, run_trial
from tests.fakes import FINGERPRINT, FakeEngine, cell_run

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ray.actor import ActorHandle

    from ddtree_tune.core.cluster_spec import LoadOn
    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.record import Fingerprint, Proposal
    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.ports import Check
    from ddtree_tune.trial import TrialEvent

SPEC = """
name: scale
space: {{budget: {budgets}, topk: [2, 4, 8], window: [none, 512, 1024, 2048]}}
load: {{contexts: [60, 1024, 4096, 8192], concurrency: [1, 2, 4, 8], output_tokens: 256, window_s: 1}}
coding: null
search: {{trials: {trials}, max_failures: 100, final: {{settings: 0, rounds: 0}}}}
"""
CELLS = 16
REAL_S = 540.0
"""Nine minutes."""


class ScriptedLoader:
    """A cell takes a known time."""

    def __init__(self, cell_s: float) -> None:
        self._cell_s = cell_s

    def run(self, endpoint: Endpoint, cell: Cell, repeat: int, check: Check) -> CellRun:  # noqa: ARG002 - the port's
        """Sleep, and answer."""
        time.sleep(self._cell_s)
        return cell_run(cell, repeat)


class ScriptedTrial(trial.TuneTrial):
    """The real trial over scripted ports; notes when it began and ended."""

    def setup(self, config: dict[str, Any], *, spec: SweepSpec, dialect: Dialect, store: ActorHandle[Any]) -> None:
        """No actors and no Serve."""
        self._spec, self._dialect, self._sink = spec, dialect, trial.RemoteSink(store)
        self._story = self._begin(config[trial.PROPOSAL])

    def step(self) -> dict[str, Any]:
        """Note the first and the last step of each trial."""
        self._notes.setdefault("begun", time.monotonic())
        result = super().step()
        if result["done"]:
            line = self._notes | {"ended": time.monotonic(), "node": os.getpid()}
            (Path(os.environ["SCALE_NOTES"]) / f"{line['trial']}.json").write_text(json.dumps(line))
        return result

    def cleanup(self) -> None:
        """Nothing to end but the story."""
        self._story.close()

    def _begin(self, proposal: Proposal) -> Generator[TrialEvent, None, None]:
        self._notes = {"trial": proposal.trial_id}
        loader = ScriptedLoader(float(os.environ["SCALE_CELL_S"]))
        world = World(FakeEngine(), loader, None, ScriptedNode(), self._sink)
        return run_trial(self._spec, self._dialect, proposal, world)


class ScriptedNode(trial._ThisNode):  # noqa: SLF001 - its clocks
    """A node whose fingerprint costs nothing: 32 of them share this machine's cores."""

    def fingerprint(self) -> Fingerprint:
        """Of no machine."""
        return FINGERPRINT


def simulate(nodes: int, seconds: float, rounds: int) -> None:
    """Run the sweep and print its figures."""
    trials = nodes * rounds
    text = SPEC.format(budgets=list(range(2, 2 + trials // 12 + 4)), trials=trials)
    spec = SweepSpec.parse(text, "scale")
    dialect = dialect_of(spec)

    @contextmanager
    def connected(_: LoadOn) -> Iterator[int]:
        ray.init(
            address="local", num_cpus=2 * nodes, resources={"sweep_node": nodes}, include_dashboard=False,
            log_to_driver=False, logging_level="ERROR", _node_ip_address="127.0.0.1",
        )  # fmt: skip
        yield nodes
        ray.shutdown()

    # One raylet stands for all nodes, which a sweep refuses.
    sweep.connected = connected
    sweep.live_nodes = lambda: {f"{n:08d}": {"sweep_node": 1.0} for n in range(nodes)}
    sweep.delete_stranded = lambda _: None
    sweep.trial_bundles = lambda *_: ([{"CPU": 1, "sweep_node": 1}], "PACK")
    sweep.TuneTrial = ScriptedTrial
    with tempfile.TemporaryDirectory() as home:
        notes = Path(home) / "notes"
        notes.mkdir()
        os.environ |= {"SCALE_NOTES": str(notes), "SCALE_CELL_S": str(seconds / CELLS), "PYTHONPATH": str(Path.cwd())}
        store = Store(f"{home}/results")
        store.write_fingerprint(FINGERPRINT)
        study = Study(spec, dialect)
        progress = Progress(spec=spec, quiet=True)
        before = psutil.Process().cpu_times()
        sweep.run_sweep(spec, dialect, study, store, progress)
        after = psutil.Process().cpu_times()
        records = store.read_records()
        broken = [one.failure for one in records if one.failure is not None]
        if broken:
            raise SystemExit(f"every trial must be measured, but got {broken[0]}")
        tell([json.loads(note.read_text()) for note in notes.iterdir()], seconds)
    cpu_s = after.user + after.system - before.user - before.system
    print(f"driver's CPU: {cpu_s / len(records):.2f} s per trial, of {sum(one.measured for one in records)} measured")


def tell(notes: list[dict[str, Any]], seconds: float) -> None:
    """Work out what was held and what was measured."""
    held = defaultdict(list)
    for note in sorted(notes, key=lambda one: one["begun"]):
        held[note["node"]].append(note)
    within = [note["ended"] - note["begun"] - seconds for note in notes]
    between = [after["begun"] - before["ended"] for one in held.values() for before, after in pairwise(one)]
    measuring_s, held_s = seconds * len(notes), sum(one[-1]["ended"] - one[0]["begun"] for one in held.values())
    overhead_s = statistics.mean(within) + statistics.mean(between)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
          f"Python {platform.python_version()}, ray {ray.__version__}")  # fmt: skip
    print(f"{len(notes)} trials of {seconds:g} s on {len(held)} nodes, {CELLS} cells each")
    for name, found in (("within a trial, beyond its load", within), ("between two trials of a node", between)):
        middle, mean = statistics.median(found), statistics.mean(found)
        print(f"{name}: mean {mean:.2f} s, median {middle:.2f}, most {max(found):.2f}")
    print(f"utilisation as run: {measuring_s / held_s:.3f}; overhead per trial: {overhead_s:.2f} s; "
          f"with trials of {REAL_S:.0f} s: {REAL_S / (REAL_S + overhead_s):.4f}")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0, help="load of a trial")
    parser.add_argument("--rounds", type=int, default=3, help="trials of a node")
    asked = parser.parse_args()
    simulate(asked.nodes, asked.seconds, asked.rounds)
