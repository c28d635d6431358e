"""A fake SGLang as a process, for tests that start one themselves."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sglang.scenario import VARIABLE, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAIR = ROOT / "ddtree_tune" / "builtin" / "pair"
QUICK = {"load_s": 0.0, "capture_s": 0.0, "step_s": 0.001, "prefill_s": 0.001, "death_s": 0.05}
"""A server in no hurry is of no use to a test that asks for facts only."""


def scenario(tmp_path: Path, **fields: Any) -> dict[str, str]:
    """Write a scenario; returns the environment that a fake needs beside its own.

    Raises:
        KeyError: there is no such field.
        TypeError: a field has another type.
    """
    text = json.dumps(fields)
    Scenario.parse(text)
    path = tmp_path / f"scenario-{len(list(tmp_path.glob('scenario-*')))}.json"
    path.write_text(text)
    return {VARIABLE: str(path), "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class FakeServer:
    """A fake that was started."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path):
        self.process = process
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}"
        self.log = log

    def lines(self) -> list[str]:
        """The log so far."""
        return self.log.read_bytes().decode().split("\n")

    def truth(self) -> list[dict[str, Any]]:
        """What the fake did, generation by generation."""
        return self.get("/truth")

    def get(self, path: str) -> Any:
        """JSON of a page."""
        return json.loads(self.fetch(path)[1])

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """JSON of an answer."""
        return json.loads(self.fetch(path, body)[1])

    def events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Every item of a stream, which must be whole."""
        status, text = self.fetch(path, body | {"stream": True})
        assert status == 200, text
        events = [line.removeprefix("data: ") for line in text.split("\n") if line]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    def fetch(self, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = 20.0) -> tuple[int, str]:
        """Status and text of a page; every status is an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def wait_ready(self, *, deadline_s: float = 30.0) -> None:
        """Until ``/health`` is 200, while the process lives."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end and self.process.poll() is None:
            with suppress(OSError):
                if self.fetch("/health", timeout_s=1.0)[0] == 200:
                    return
            time.sleep(0.02)
        raise AssertionError(f"the fake must come up, but its log ends {self.lines()[-20:]}")

    def wait_end(self, *, deadline_s: float = 20.0) -> int:
        """The exit code."""
        return self.process.wait(deadline_s)


@contextmanager
def running(
    tmp_path: Path,
    *args: str,
    wait: bool = True,
    model: str = "tiny",
    environment: dict[str, str] | None = None,
    **told,
) -> Iterator[FakeServer]:
    """Start a fake in a session of its own, and end all of it.

    Args:
        tmp_path: takes scenario and log.
        args: more of the command line.
        wait: until it is ready.
        model: the model path.
        environment: more of it.
        told: fields of the scenario.
    """
    port = free_port()
    environment = os.environ | scenario(tmp_path, **(QUICK | told)) | (environment or {})
    argv = [sys.executable, "-m", "tests.sglang.fake", "--model-path", model, "--host", "127.0.0.1"]
    log = tmp_path / f"server-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv, "--port", str(port), *args],
            env=environment,
            cwd=tmp_path,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = FakeServer(process, port, log)
    try:
        if wait:
            server.wait_ready()
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
