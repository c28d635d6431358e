"""The truth server as a process, and what tests say to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np

from ddtree_tune.core.engine import Endpoint, Route
from ddtree_tune.core.errors import LoadError
from ddtree_tune.core.trace import Phase
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.counting import Counts
from ddtree_tune.node.live import ChatRequest, user
from ddtree_tune.node.loadgen import Job, run_cell
from ddtree_tune.node.prompts import Prompt
from ddtree_tune.node.watch import Limits
from tests.truth.server import MODEL, TEMPLATE

QUICK = Limits(stall_s=2.0, request_s=20.0, drain_s=5.0)


class TruthServer:
    """A running truth server."""

    def __init__(self, port: int, process: subprocess.Popen[str] | None = None) -> None:
        self.base_url = f"http://127.0.0.1:{port}"
        self.process = process

    def script(self, **behaviour) -> None:
        """Say how the next requests behave; forgets what was recorded."""
        self._http("/script", behaviour)

    def truth(self) -> list[dict]:
        """What the server did, request by request."""
        return self._http("/truth")

    @contextmanager
    def killed_after(self, *, streams: int):
        """Kill the process once it has sent so many whole streams, while the block runs."""
        over = threading.Event()

        def watch():
            while not over.wait(0.05):
                if sum(record["end_ns"] is not None for record in self.truth()) >= streams:
                    self.process.kill()
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _http(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.base_url + path, data, headers), timeout=10) as reply:
            return json.load(reply)


@contextmanager
def running():
    """Start a truth server and end it."""
    argv = [sys.executable, "-m", "tests.truth.server"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            yield TruthServer(int(process.stdout.readline()), process)
        finally:
            process.kill()


def cell(users=4, *, context=60, output=32, window_s=0.8, min_requests=0, arrival=None) -> Cell:
    """A small cell."""
    return Cell(context, output, arrival or ClosedLoop(users), window_s, min_requests=min_requests)


def words(cell: Cell, salt: str = ""):
    """Prompts of exactly the cell's length, none like another."""

    async def cut(phase: Phase, index: int) -> Prompt:
        text = " ".join(f"{salt}{phase}{index}x{i}" for i in range(cell.context - TEMPLATE))
        return Prompt(text, "words", cell.context)

    return cut


def load(server: TruthServer, cell: Cell, *, limits=QUICK, repeat=0, salt="", cut=None, route="chat", **options):
    """One repeat of a cell against the server."""
    cut = cut or words(cell, f"r{repeat}{salt}")
    endpoint = Endpoint(server.base_url, MODEL, Route(route))
    return asyncio.run(run_cell(endpoint, cell, cut, repeat=repeat, limits=limits, **options))


class Words:
    """Prompts of exactly a cell's length by the truth server's count, none like another."""

    sha256 = "w" * 64
    samples: ClassVar = {}

    async def cut(self, cell: Cell, stream: int, index: int, counter: object) -> Prompt:
        """See ``prompts.Prompts``."""
        if cell.context <= TEMPLATE:
            raise LoadError(f"a prompt must hold more than the template's {TEMPLATE} tokens, but got {cell.context}")
        text = " ".join(f"s{stream}x{index}x{i}" for i in range(cell.context - TEMPLATE))
        return Prompt(text, "words", cell.context)


def job(server: TruthServer, cell: Cell, *, limits=QUICK, repeat=0) -> Job:
    """What a load process is told."""
    streams = {phase: len(Phase) * repeat + at for at, phase in enumerate(Phase)}
    return Job(Endpoint(server.base_url, MODEL), cell, repeat, 0, limits, Words(), streams, Counts())


def tokens_sent_inside(truth: TruthServer, window) -> int:
    """What the server sent while the window was open."""
    return sum(
        tokens
        for record in truth.truth()
        for at, tokens in zip(record["sent_ns"], record["tokens"], strict=True)
        if window.start_ns <= at < window.end_ns
    )


def most_at_once(truth: TruthServer) -> int:
    """Most streams that the server held at the same time."""
    streams = [record for record in truth.truth() if record["body"].get("stream")]
    edges = [(record["received_ns"], 1) for record in streams]
    edges += [(record["end_ns"], -1) for record in streams if record["end_ns"]]
    return max(np.cumsum([step for _, step in sorted(edges)]))


def ask(server: TruthServer, request: ChatRequest | None = None, *, timeout_s=5.0, stall_s=2.0, **options):
    """One request through the client."""

    async def once():
        endpoint = Endpoint(server.base_url, MODEL, **options)
        async with EngineClient(endpoint, timeout_s=timeout_s, stall_s=stall_s) as client:
            return await client.chat(
                request or ChatRequest(user("tell me more"), max_tokens=32),
                request_id="r",
                phase=Phase.WINDOW,
                family="words",
            )

    return asyncio.run(once())


def assert_real(run) -> None:
    """Refuse a run in which nothing happened before anything else is asserted of it."""
    assert run.window is not None
    assert run.window.seconds >= run.cell.window_s
    assert sum(trace.ok for trace in run.traces) >= (run.cell.concurrency or 1)
