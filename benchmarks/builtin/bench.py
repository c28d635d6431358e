"""Measure the built-in engine in process: what each setting costs per step and gives per second.

Run it on a quiet machine, one BLAS thread, from the repository root:

    OPENBLAS_NUM_THREADS=1 python benchmarks/builtin/bench.py > table.md

One decoder reads eight prompts of a context length once; then every setting decodes their replies,
in batches of the cell's size, again and again, in turns. A setting's figure is its best turn by the thread's CPU time,
which other processes disturb least; wall time is given beside it. Greedy replies of all settings
must be equal, or the run fails. HTTP is not part of it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np

from ddtree_tune.builtin.decoder import Decoder, Part, Stream
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.builtin.sampling import Sampler, Sampling
from ddtree_tune.builtin.speculation import Speculation
from ddtree_tune.builtin.text import TextCodec
from ddtree_tune.builtin.weights import load_drafter, load_target
from ddtree_tune.core.engine import Algorithm

CHUNK = 256
PROMPTS = 8
BUDGETS = (3, 4, 7, 8, 12, 15, 16, 24, 32, 48, 64)
"""3, 7 and 15 fill the rows of a product in fours, for the root is a row too."""


@dataclass
class Turns:
    """One setting's turns in one cell."""

    speculation: Speculation
    cpu_tps: list[float] = field(default_factory=list)
    wall_tps: list[float] = field(default_factory=list)
    accept_len: float = 1.0
    split_ms: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Draft, build, verify and commit of one step, in the best turn."""


def settings(block_size: int) -> dict[str, Speculation]:
    """What is compared, by name."""
    named = {"no speculation": Speculation(Algorithm.NONE)}
    for block in (block_size, block_size // 2):
        named[f"chain, block {block}"] = Speculation.resolve(Algorithm.CHAIN, 1, 1, None, block)
    for budget in BUDGETS:
        named[f"{budget}/4/none"] = tree(budget, 4, None, block_size)
    for topk in (1, 2, 8):
        named[f"16/{topk}/none"] = tree(16, topk, None, block_size)
    for window in (64, 256):
        named[f"16/4/{window}"] = tree(16, 4, window, block_size)
    for budget in (7, 15):
        named[f"{budget}/4/none, block {block_size // 2}"] = tree(budget, 4, None, block_size // 2)
    return named


def tree(budget: int, topk: int, window: int | None, block_size: int) -> Speculation:
    """A draft tree."""
    return Speculation.resolve(Algorithm.TREE, budget, topk, window, block_size)


def prompts(codec: TextCodec, context: int) -> list[list[int]]:
    """Chat prompts of about ``context`` tokens: a task of the load, and code of the standard library before it."""
    lines = (resources.files("ddtree_tune") / "problems" / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    source = codec.encode(inspect.getsource(argparse))
    made = []
    for index in range(PROMPTS):
        question = json.loads(lines[index * len(lines) // PROMPTS])["prompt"]
        task = question
        room = context - len(codec.encode(question)) - 24
        if room > 0:
            start = index * 997
            cut = codec.decode((source[start:] + source[:start])[:room])
            task = f"Here is some code from the project:\n```python\n{cut}\n```\n{question}"
        made.append(codec.encode(codec.render([{"role": "user", "content": task}], {}), special=False))
    return made


def decode(decoder: Decoder, streams: list[Stream], tokens: int) -> tuple[list[list[int]], list[int]]:
    """Greedy replies of all streams, and the tokens that each step of each stream committed."""
    replies = [[stream.anchor] for stream in streams]
    commits: list[int] = []
    live = list(range(len(streams)))
    while live:
        for index, commit in zip(live, decoder.step([streams[index] for index in live]), strict=True):
            replies[index] += commit.tokens
            commits.append(len(commit.tokens))
        live = [
            index
            for index in live
            if len(replies[index]) < tokens and replies[index][-1] not in streams[index].stop_ids
        ]
    return [reply[:tokens] for reply in replies], commits


class Bench:
    """One context length: its prompts are read, and any setting can decode from there."""

    def __init__(self, pair: Path, context: int, tokens: int) -> None:
        target = load_target(pair / "target")
        drafter = load_drafter(pair / "draft", target)
        self.block_size = drafter.config.block_size
        self.tokens = tokens
        widest = tree(max(BUDGETS), 8, None, self.block_size)
        made = prompts(TextCodec(pair / "target"), context)
        length = max(map(len, made)) + tokens
        self.decoder = Decoder(
            target, drafter, widest, slots=len(made), length=length, chunk=CHUNK, clock=time.thread_time
        )
        sampling = Sampling(tokens, temperature=0.0)
        self.streams = [Stream(slot, Sampler(sampling), target.stop_ids) for slot in range(len(made))]
        self._read(made[0])  # touches the memory
        self.streams[0].length = 0
        start_s = time.thread_time()
        for stream, prompt in zip(self.streams, made, strict=True):
            self._read(prompt, stream)
        self.prefill_tps = sum(map(len, made)) / (time.thread_time() - start_s)
        self._begun = [(stream.length, stream.anchor) for stream in self.streams]

    def _read(self, prompt: list[int], stream: Stream | None = None) -> None:
        for at in range(0, len(prompt), CHUNK):
            part = Part(stream or self.streams[0], prompt[at : at + CHUNK], last=at + CHUNK >= len(prompt))
            self.decoder.read([part])

    def cell(self, batch: int, repeats: int) -> dict[str, Turns]:
        """All settings at one batch size, in turns."""
        turns = {name: Turns(speculation) for name, speculation in settings(self.block_size).items()}
        expected: list[list[int]] | None = None
        for _ in range(repeats):
            for name, one in turns.items():
                replies = self._turn(one, batch)
                expected = expected or replies
                if replies != expected:
                    raise SystemExit(f"{name} must decode what no speculation does, but got another text")
        return turns

    def _turn(self, one: Turns, batch: int) -> list[list[int]]:
        """Let one setting decode every reply once."""
        self.decoder.use(one.speculation)
        for stream, (length, anchor) in zip(self.streams, self._begun, strict=True):
            stream.length, stream.anchor = length, anchor
        replies: list[list[int]] = []
        commits: list[int] = []
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        for first in range(0, len(self.streams), batch):
            some, lengths = decode(self.decoder, self.streams[first : first + batch], self.tokens)
            replies += some
            commits += lengths
        cpu_s, wall_s = time.thread_time() - cpu_s, time.perf_counter() - wall_s
        made = sum(map(len, replies)) - len(replies)
        one.accept_len = sum(commits) / len(commits)
        one.wall_tps.append(made / wall_s)
        one.cpu_tps.append(made / cpu_s)
        if one.cpu_tps[-1] == max(one.cpu_tps):
            split = self.decoder.times
            parts = (split.draft_s, split.build_s, split.verify_s, split.commit_s)
            one.split_ms = tuple(1000 * part / split.steps for part in parts)  # type: ignore[assignment]
        return replies


def show(context: int, batch: int, turns: dict[str, Turns], prefill_tps: float) -> None:
    """One table."""
    print(f"\n### Context {context}, batch {batch} (prefill {prefill_tps:.0f} tokens/s)\n")
    heads = ["budget/topk/window", "τ", "tok/s CPU", "of none", "of best chain", "tok/s wall"]
    heads += ["draft", "build", "verify", "commit"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    none = max(turns["no speculation"].cpu_tps)
    chain = max(max(one.cpu_tps) for name, one in turns.items() if name.startswith("chain"))
    best = max(max(one.cpu_tps) for one in turns.values())
    for name, one in turns.items():
        tps = max(one.cpu_tps)
        mark = "**" if tps == best else ""
        split = " | ".join(f"{part:.2f}" for part in one.split_ms)
        print(
            f"| {name} | {one.accept_len:.2f} | {mark}{tps:.0f}{mark} | {tps / none:.2f} | {tps / chain:.2f} "
            f"| {max(one.wall_tps):.0f} | {split} |",
            flush=True,
        )


def machine() -> str:
    """What it ran on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {blas['name']} {blas['version']}, "
        f"OPENBLAS_NUM_THREADS={os.environ.get('OPENBLAS_NUM_THREADS')}, commit {commit.strip()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def main() -> int:
    """Measure and print."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--pair", type=Path, default=PAIR)
    command.add_argument("--contexts", type=int, nargs="+", default=[60, 512, 1024, 4096])
    command.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    command.add_argument("--tokens", type=int, default=96, help="of each reply")
    command.add_argument("--repeats", type=int, default=5)
    asked = command.parse_args()
    print(f"{machine()}; {asked.tokens} tokens a reply, best of {asked.repeats} turns; ms per step in the last columns")
    for context in asked.contexts:
        bench = Bench(asked.pair, context, asked.tokens)
        for batch in asked.batches:
            show(context, batch, bench.cell(batch, asked.repeats), bench.prefill_tps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
