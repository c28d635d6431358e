"""The engine as a process of this node: launch, watch, probe, stop.

Implements ``ports.Engine`` for any dialect. The server runs under ``node.supervise``, so it never
outlives the process that holds this object. Ports and served names are fresh for each launch, so a
stale server can never answer for a new one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddtree_tune.core.engine import Endpoint, EngineHandle, EngineState, LaunchPlan, Slot
from ddtree_tune.core.errors import EngineError, FailureClass, boundary
from ddtree_tune.core.faults import classify
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.probe import run_probe
from ddtree_tune.node.supervise import GRACE_VARIABLE

if TYPE_CHECKING:
    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.gate import Probe
    from ddtree_tune.core.spec import SweepSpec

HOST = "127.0.0.1"
LOG_TAIL_BYTES = 6_000
LOG_KEPT_BYTES = 1_000_000
POLL_S = 0.05


@dataclass
class _Running:
    """One launched server."""

    plan: LaunchPlan
    process: subprocess.Popen[bytes]
    folder: Path
    launched: float
    ready: bool = False

    @property
    def log(self) -> Path:
        return self.folder / "server.log"


class NodeEngine:
    """Owns at most one server at a time."""

    def __init__(self, spec: SweepSpec, dialect: Dialect, *, name: str, node_id: str = "local") -> None:
        self._spec = spec
        self._dialect = dialect
        self._name = name
        self._node_id = node_id
        self._running: _Running | None = None

    def start(self, config: EngineConfig) -> EngineHandle:
        """Launch a server and wait until it answers.

        Raises:
            EngineError: it ended, or was not ready within the spec's deadline.
        """
        if self._running is not None:
            raise EngineError("a node runs one server at a time, but got a second start; stop the first")
        running = self._running = self._launch(config)
        deadline = running.launched + self._spec.engine.start_deadline_s
        while True:
            code = running.process.poll()
            if code is not None:
                fault = classify(self._tail(running), _exit_code(code), ready=False)
                raise EngineError(fault.reason, fault.failure)
            if self._answers(running.plan):
                running.ready = True
                break
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the server must be ready within {self._spec.engine.start_deadline_s:g} s, but got no answer on "
                    f"{running.plan.base_url}/health; raise engine.start_deadline_s or read the log",
                    FailureClass.STARTUP_TIMEOUT,
                )
            time.sleep(POLL_S)
        return EngineHandle(
            endpoint=Endpoint(running.plan.base_url, running.plan.served_model_name),
            plan=running.plan,
            pid=running.process.pid,
            node_id=self._node_id,
            ready_s=time.monotonic() - running.launched,
        )

    def probe(self, handle: EngineHandle) -> Probe:
        """Gather what the gate judges, within the gate's deadline."""
        owned = _owns_port(handle.pid, handle.plan.port)
        alive = self.state().alive
        with boundary(EngineError, "probe the server"):
            return asyncio.run(
                run_probe(handle.endpoint, self._spec.gate, self._spec.max_concurrency, alive=alive, port_owned=owned)
            )

    def state(self) -> EngineState:
        """Say how the server is doing; not alive when none was launched."""
        running = self._running
        if running is None:
            return EngineState(alive=False, reason="no server was launched")
        tail = self._tail(running)
        code = running.process.poll()
        if code is None:
            return EngineState(alive=True, log_tail=tail)
        fault = classify(tail, _exit_code(code), ready=running.ready)
        return EngineState(
            alive=False, exit_code=_exit_code(code), failure=fault.failure, reason=fault.reason, log_tail=tail
        )

    def stop(self) -> str:
        """End the server and all its processes; return the end of its log.

        Raises:
            EngineError: the port did not come free.
        """
        running, self._running = self._running, None
        if running is None:
            return ""
        if running.process.stdin:
            running.process.stdin.close()
        grace = self._spec.engine.stop_grace_s
        try:
            running.process.wait(grace + 5)
        except subprocess.TimeoutExpired:
            running.process.kill()  # its death kills the server through the kernel
            running.process.wait()
        log = running.log.read_bytes()[-LOG_KEPT_BYTES:].decode(errors="replace")
        shutil.rmtree(running.folder, ignore_errors=True)
        _wait_port_free(running.plan.port, grace + 5)
        return log

    def _launch(self, config: EngineConfig) -> _Running:
        spec = self._spec.engine
        slot = Slot(
            host=HOST,
            port=_fresh_port(),
            served_model_name=f"{self._name}-{secrets.token_hex(4)}",
            model=spec.model,
            draft_model=spec.draft_model,
            max_running_requests=self._spec.max_concurrency,
            args=spec.args,
            env=tuple(sorted(spec.env.items())),
        )
        plan = self._dialect.plan(config, slot)
        folder = Path(tempfile.mkdtemp(prefix="ddtree-tune-"))
        env = os.environ | dict(plan.env) | {GRACE_VARIABLE: str(spec.stop_grace_s), "PYTHONUNBUFFERED": "1"}
        # A plan says "python" so that people can paste it; here it means the interpreter that runs us.
        argv = [sys.executable if plan.argv[0] == "python" else plan.argv[0], *plan.argv[1:]]
        with boundary(EngineError, "launch the server"), (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ddtree_tune.node.supervise", *argv],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
            )
        return _Running(plan, process, folder, time.monotonic())

    def _answers(self, plan: LaunchPlan) -> bool:
        async def ask() -> bool:
            async with EngineClient(Endpoint(plan.base_url, plan.served_model_name), timeout_s=2, stall_s=2) as client:
                try:
                    await client.get_text("/health")
                except EngineError:
                    return False
                return True

        return _listening(plan.port) and asyncio.run(ask())

    def _tail(self, running: _Running) -> str:
        with running.log.open("rb") as log:
            log.seek(max(0, running.log.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")


def _exit_code(supervised: int) -> int:
    """The server's own code from the supervisor's: 128 + n is signal n."""
    return 128 - supervised if supervised > 128 else supervised


def _fresh_port() -> int:
    """A port that the system gives and on which nobody listens."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _listening(port: int) -> bool:
    """Whether anybody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def _wait_port_free(port: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while _listening(port):
        if time.monotonic() > deadline:
            raise EngineError(
                f"port {port} must be free after the server was stopped, but got a listener still after {limit_s:g} s",
                FailureClass.DIRTY_NODE,
            )
        time.sleep(POLL_S)


def _owns_port(pid: int, port: int) -> bool | None:
    """Whether the process or a descendant listens on the port; None if the system does not say."""
    try:
        ours = {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
        connections = psutil.net_connections("tcp")
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None
    listening = [one for one in connections if one.status == psutil.CONN_LISTEN and one.laddr]
    owners = {one.pid for one in listening if one.laddr and one.laddr.port == port}
    return bool(owners & ours) if owners - {None} else None
