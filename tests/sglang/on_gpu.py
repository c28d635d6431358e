"""Runs the product's own trials against a real SGLang on one GPU, and keeps their results folders.

    python -m tests.sglang.on_gpu OUT [PART ...]

Each part is one results folder with one or two trials of stock SGLang and the shipped pair: `whole`
(no speculation, then the chain, each with gate, two cells, coding and stop), `killed` (the server is
killed in the middle of a cell) and `overridden` (SGLang ignores a flag without a word).
`tests/golden/h200` holds what it wrote on an H200.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddtree_tune.core.dialects import select
from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.record import Origin, Proposal
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.apart import LoaderProcess
from ddtree_tune.node.engine import NodeEngine
from ddtree_tune.node.fingerprint import ThisNode, fingerprint
from ddtree_tune.node.gpus import GpuWatch
from ddtree_tune.node.grader import NodeGrader
from ddtree_tune.node.store import Store
from ddtree_tune.trial import World, run_trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.coding import Attempt
    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.ports import Check

BLOCK_SIZE = 16
KILL_AFTER_S = 2.0
"""Into the load: past the warm-up, inside the first window."""
SPEC = """
name: {name}
question: Does stock SGLang's DFLASH chain serve the shipped pair faster than no speculation?
engine:
  kind: sglang
  dialect: sglang-dflash
  model: ddtree_tune/builtin/pair/target
  draft_model: ddtree_tune/builtin/pair/draft
  block_size: 16
  args: {args}
  tree_args: [--page-size, "1"]
  stop_grace_s: 10
space: {{budget: [15], topk: [1], window: [none]}}
load: {{contexts: [60, 512], concurrency: [8], output_tokens: 128, window_s: {window_s}, repeats: 2}}
coding: {{problems: five_kinds, concurrency: 8, sandbox: weak}}
"""
ARGS = ["--attention-backend=triton", "--sampling-backend=pytorch", "--mem-fraction-static=0.3", "--log-level=info"]


class _Grader:
    """The node's grader in this process: nothing is measured beside it."""

    def __init__(self, spec: SweepSpec):
        coding = spec.coding
        assert coding is not None
        self._grader = NodeGrader(coding, served=8, seed=spec.search.seed, stall_s=spec.engine.stall_s)

    def run(self, endpoint: Endpoint, check: Check) -> Sequence[Attempt]:
        check()
        return self._grader.run(endpoint)


@dataclass
class Bench:
    """One results folder that fills."""

    out: Path
    name: str
    args: tuple[str, ...] = ()
    window_s: float = 2.0

    def __post_init__(self) -> None:
        text = SPEC.format(name=self.name, args=[*ARGS, *self.args], window_s=self.window_s).lstrip()
        self.spec = SweepSpec.parse(text, "sweep.yaml")
        self.dialect = select(self.spec.engine, BLOCK_SIZE)
        self.store = Store(str((self.out / self.name).absolute()))
        self.store.write_fingerprint(fingerprint())
        self.store.write_spec(text)

    def trial(
        self, number: int, config: EngineConfig, *, kill: bool = False, reference: str | None = None
    ) -> TrialRecord:
        """Run one trial to its end, telling what happens."""
        proposal = Proposal(f"{number:04d}-{config.algorithm}", config, Origin.SEED, not kill, reference=reference)
        engine = NodeEngine(self.spec, self.dialect, name=f"trial-{number:04d}", node_id="h200")
        begun = time.monotonic()
        with (
            LoaderProcess(self.spec.load, seed=0, stall_s=self.spec.engine.stall_s) as loader,
            GpuWatch(release_s=self.spec.engine.release_s) as gpus,
        ):
            world = World(engine, loader, _Grader(self.spec), ThisNode(), self.store, gpus)
            for event in run_trial(self.spec, self.dialect, proposal, world):
                print(
                    f"[{time.monotonic() - begun:6.1f} s] {self.name} {config.label}",
                    event.stage,
                    _told(event),
                    flush=True,
                )
                if kill and event.stage == "gate":
                    threading.Timer(KILL_AFTER_S, _kill_server).start()
                if event.record:
                    return event.record
        raise AssertionError("a trial must end with a record")


def _told(event) -> str:
    record = event.record
    if record:
        return f"{record.status} {record.failure} {[(s.stage, round(s.seconds, 1)) for s in record.spans]}"
    return str(event.starting or event.ready_s or event.cell or event.pass_rate or "")[:700]


def _kill_server() -> None:
    """Kill -9 of the process that was launched as SGLang; its schedulers are orphans then."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            words = process.cmdline()
            if "sglang.launch_server" in words and "ddtree_tune.node.supervise" not in words:
                process.send_signal(signal.SIGKILL)
                return


def whole(out: Path) -> None:
    """No speculation, and the chain whose greedy answer must equal it."""
    bench = Bench(out, "whole")
    plain = bench.trial(1, EngineConfig(Algorithm.NONE))
    bench.trial(2, EngineConfig(Algorithm.CHAIN), reference=plain.answer)


def killed(out: Path) -> None:
    """The server dies in the middle of a cell."""
    Bench(out, "killed", window_s=8.0).trial(1, EngineConfig(Algorithm.CHAIN), kill=True)


def overridden(out: Path) -> None:
    """SGLang's DFLASH has one step, whatever is asked."""
    Bench(out, "overridden", ("--speculative-num-steps=3",)).trial(1, EngineConfig(Algorithm.CHAIN))


PARTS = {"whole": whole, "killed": killed, "overridden": overridden}

if __name__ == "__main__":
    for part in sys.argv[2:] or PARTS:
        PARTS[part](Path(sys.argv[1]))
