"""What the load generator itself costs: CPU per chunk, and how late a chunk is stamped.

Runs closed loops against the tests' server of known truth, a process of its own that records when
it sent each chunk; once as the package does, and once with a general HTTP client in the same
place. Prints a Markdown table.
"""

import asyncio
import platform
import time
from collections.abc import Callable
from importlib.metadata import version

import httpx
import numpy as np

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.sse import SseParser
from ddtree_tune.core.trace import CellRun
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.node import slots
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.live import ChatRequest, LiveTrace
from ddtree_tune.node.loadgen import run_cell
from tests.truth.harness import TruthServer, running, words
from tests.truth.server import MODEL

LOADS = ((8, 20), (64, 20), (64, 15))
"""(streams, milliseconds between the chunks of one stream)."""
TOKENS_PER_CHUNK = 4
OUTPUT_TOKENS = 256
WINDOW_S = 5.0
HEAD = (
    "client",
    "streams",
    "chunks/s",
    "CPU us/chunk",
    "core",
    "late ms p50, p99",
    "loop lag ms mean, p99",
    "in flight",
)


class GeneralClient(EngineClient):
    """The same client with its streams over httpx, one connection pool each."""

    async def _stream(
        self, path: str, data: bytes, read: Callable[[str, int, LiveTrace], None], live: LiveTrace
    ) -> None:
        async with self._http.stream(
            "POST", path, content=data, headers={"Content-Type": "application/json"}
        ) as response:
            live.status_code = response.status_code
            parser = SseParser()
            async for block in response.aiter_raw():
                at_ns = time.perf_counter_ns()
                for event in parser.feed(block):
                    if event.data == "[DONE]":
                        live.end_ns = at_ns
                    else:
                        read(event.data, at_ns, live)


def row(server: TruthServer, client: type[EngineClient], streams: int, gap_ms: int) -> tuple[str, ...]:
    """Measure one load through one client."""
    server.script(gap_s=gap_ms / 1000, steps=[TOKENS_PER_CHUNK], ttft_s=0.05)
    cell = Cell(60, OUTPUT_TOKENS, ClosedLoop(streams), WINDOW_S)
    slots.EngineClient = client  # type: ignore[attr-defined]
    cpu, wall = time.process_time(), time.perf_counter()
    run = asyncio.run(run_cell(Endpoint(server.base_url, MODEL), cell, words(cell), repeat=0))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    chunks = sum(len(trace.chunk_ns) for trace in run.traces)
    late = lateness_ms(server, run)
    lag = np.asarray(run.lag_ns) / 1e6
    return (
        "wire" if client is EngineClient else f"httpx {httpx.__version__}",
        str(streams),
        f"{chunks / wall:.0f} of {streams * 1000 / gap_ms:.0f}",
        f"{cpu / chunks * 1e6:.0f}",
        f"{cpu / wall:.0%}",
        f"{np.percentile(late, 50):.1f}, {np.percentile(late, 99):.1f}",
        f"{lag.mean():.1f}, {np.percentile(lag, 99):.1f}",
        f"{measure([run]).in_flight_mean:.2f}",
    )


def lateness_ms(server: TruthServer, run: CellRun) -> np.ndarray:
    """Send to arrival of every chunk, paired by prompt."""
    sent = {ChatRequest(record["body"]["messages"]).sha: record["sent_ns"] for record in server.truth()}
    return np.concatenate([np.subtract(trace.chunk_ns, sent[trace.prompt_sha]) for trace in run.traces]) / 1e6


if __name__ == "__main__":
    print(f"Python {platform.python_version()}, numpy {version('numpy')}, {platform.system()} {platform.machine()}\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    with running() as truth:
        for load in LOADS:
            for client in (EngineClient, GeneralClient):
                print(f"| {' | '.join(row(truth, client, *load))} |", flush=True)
