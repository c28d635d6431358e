"""What the load generator itself costs: CPU per chunk, and how late a chunk is stamped.

Runs closed loops against the emitter, a process of its own on a core of its own which records when
it sent each chunk; as the package does, on plain asyncio, and with a general HTTP client in the
same place. Prints a Markdown table, in less than two minutes.

    python -m benchmarks.load.cost
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.load.emitter import MODEL, PROMPT_TOKENS
from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.node import loops, slots
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.loadgen import run_cell
from ddtree_tune.node.stream import StreamReader
from tests.truth.harness import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddtree_tune.core.trace import CellRun, Window
    from ddtree_tune.node.live import LiveTrace

TOKENS_PER_CHUNK = 4
OUTPUT_TOKENS = 512
WINDOW_S = 4.0
HEAD = (
    "client",
    "streams",
    "sent",
    "chunks/s",
    "CPU us/chunk",
    "core",
    "late ms p50, p99",
    "lag ms p50, p99",
    "tok/s sent",
    "measured",
)


class GeneralClient(EngineClient):
    """The same client with its streams over httpx, one connection pool each."""

    async def _stream(
        self, path: str, data: bytes, read: Callable[[str, int, LiveTrace], None], live: LiveTrace
    ) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._http.stream("POST", path, content=data, headers=headers) as response:
            reader = StreamReader(read, live)
            reader.head(response.status_code, dict(response.headers))
            async for content in response.aiter_raw():
                reader.body(content, time.perf_counter_ns())
            reader.end()


@dataclass(frozen=True)
class Load:
    """One row."""

    client: str
    streams: int = 64
    gap_ms: float = 20.0
    spread: bool = False


LOADS = (
    Load("ours", streams=8),
    Load("ours"),
    Load("ours, asyncio"),
    Load("httpx"),
    Load("ours", spread=True),
    Load("ours, asyncio", spread=True),
    Load("httpx", spread=True),
    Load("ours", gap_ms=10.0),
    Load("ours", gap_ms=5.0),
)


@contextmanager
def emitting(load: Load, core: int | None) -> Iterator[str]:
    """An emitter's base address."""
    argv = [sys.executable, "-m", "benchmarks.load.emitter", "--gap-ms", str(load.gap_ms)]
    argv += ["--tokens", str(TOKENS_PER_CHUNK), *(["--spread"] if load.spread else [])]
    argv += [] if core is None else ["--core", str(core)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@dataclass(frozen=True)
class Seen:
    """One cell, and the CPU time of its process while its window was open."""

    run: CellRun
    cpu_s: float


async def probed(base_url: str, load: Load) -> Seen:
    """Run one cell and watch its process."""
    cell = Cell(PROMPT_TOKENS, OUTPUT_TOKENS, ClosedLoop(load.streams), WINDOW_S)
    looks: list[tuple[int, float]] = []

    async def look() -> None:
        while True:
            looks.append((time.perf_counter_ns(), time.process_time()))
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    run = await run_cell(Endpoint(base_url, MODEL), cell, words(cell), repeat=0)
    looking.cancel()
    opened, closed = np.interp([run.window.start_ns, run.window.end_ns], *np.transpose(looks))
    return Seen(run, closed - opened)


def row(load: Load, core: int | None) -> tuple[str, ...]:
    """Measure one load through one client."""
    slots.EngineClient = GeneralClient if load.client == "httpx" else EngineClient
    drive = loops.run if load.client == "ours" else asyncio.run
    with emitting(load, core) as base_url:
        seen = drive(probed(base_url, load))
        with urllib.request.urlopen(f"{base_url}/truth", timeout=10) as reply:
            truth = json.load(reply)["requests"]
    run, window = seen.run, seen.run.window
    chunks = sum(window.start_ns <= at_ns < window.end_ns for trace in run.traces for at_ns in trace.chunk_ns)
    sent_tps, seen_tps = tokens_sent(truth, window) / window.seconds, measure([run]).output_tps
    late_ms, lag_ms = lateness_ns(truth, run) / 1e6, np.asarray(run.lag_ns) / 1e6
    return (
        load.client,
        str(load.streams),
        "spread" if load.spread else "in step",
        f"{chunks / window.seconds:.0f}",
        f"{seen.cpu_s / chunks * 1e6:.1f}",
        f"{seen.cpu_s / window.seconds:.0%}",
        f"{np.percentile(late_ms, 50):.2f}, {np.percentile(late_ms, 99):.2f}",
        f"{np.percentile(lag_ms, 50):.2f}, {np.percentile(lag_ms, 99):.2f}",
        f"{sent_tps:.0f}",
        f"{seen_tps / sent_tps - 1:+.2%}",
    )


def tokens_sent(truth: list[dict], window: Window) -> int:
    """Tokens that left the server while the window was open."""
    total = 0
    for record in truth:
        inside = [window.start_ns <= at_ns < window.end_ns for at_ns in record["sent_ns"]]
        total += int(np.diff(record["counts"][: len(inside)], prepend=0)[inside].sum())
    return total


def lateness_ns(truth: list[dict], run: CellRun) -> np.ndarray:
    """Send to stamp of every chunk, paired by prompt: (n_chunks,) int64."""
    sent = {record["prompt_sha"]: record["sent_ns"] for record in truth}
    return np.concatenate([np.subtract(trace.chunk_ns, sent[trace.prompt_sha]) for trace in run.traces])


if __name__ == "__main__":
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    own, other = cores[:2] if len(cores) > 1 else (None, None)
    if own is not None:
        os.sched_setaffinity(0, {own})
    packages = ", ".join(f"{name} {version(name)}" for name in ("uvloop", "msgspec", "httptools", "httpx"))
    print(f"Python {platform.python_version()}, {packages}, {platform.system()} {platform.machine()}, ", end="")
    print(f"one core for each process, load average {os.getloadavg()[0]:.1f}\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for one in LOADS:
        print(f"| {' | '.join(row(one, other))} |", flush=True)
