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
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddtree_tune.core.engine import Endpoint, EngineHandle, EngineState, Slot, Starting
from ddtree_tune.core.engine_spec import FAKED_ACCEPTANCE
from ddtree_tune.core.errors import EngineError, FailureClass, boundary
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.launched import EXIT_FILE, Launched
from ddtree_tune.node.probe import run_probe
from ddtree_tune.node.sockets import HOST, POLL_S, fresh_ports, listening, owns_port, wait_free
from ddtree_tune.node.supervise import EXIT_VARIABLE, GRACE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import EngineConfig, LaunchPlan
    from ddtree_tune.core.gate import Probe
    from ddtree_tune.core.spec import SweepSpec

LOG_KEPT_BYTES = 1_000_000
HEALTH_PERIOD_S = {"builtin": POLL_S, "sglang": 0.5}
"""Between two looks at a starting server's ``/health``, which SGLang writes to its log."""
HEALTH_S = 4.0
"""Most time for one look at ``/health``; SGLang answers it only after it has generated a token."""


class NodeEngine:
    """Owns at most one server at a time."""

    def __init__(
        self, spec: SweepSpec, dialect: Dialect, *, name: str, node_id: str = "local", host: str = HOST
    ) -> None:
        """Own no server yet.

        Args:
            spec: the sweep.
            dialect: how its engine spells the knobs.
            name: of the trial; the served name starts with it.
            node_id: of this machine.
            host: the address that servers bind: loopback, unless load comes from another machine.
        """
        self._host = host
        self._spec = spec
        self._dialect = dialect
        self._name = name
        self._node_id = node_id
        self._running: Launched | None = None

    def launch(self, config: EngineConfig) -> None:
        """Start a server's process.

        Raises:
            EngineError: this machine cannot run one now.
        """
        if self._running is not None:
            raise EngineError("a node runs one server at a time, but got a second launch; stop the first")
        spec = self._spec.engine
        port, *further = fresh_ports()
        slot = Slot(
            host=self._host,
            port=port,
            served_model_name=f"{self._name}-{secrets.token_hex(4)}",
            model=spec.model,
            draft_model=spec.draft_model,
            max_running_requests=self._spec.max_concurrency,
            further_ports=tuple(further),
            args=spec.args,
            env=tuple(sorted(spec.env.items())),
        )
        plan = self._dialect.plan(config, slot)
        env = os.environ | dict(plan.env) | {"PYTHONUNBUFFERED": "1"}
        refuse_faked(env)
        deadline_s = spec.deadline_s(_weight_bytes(spec.model))
        folder = Path(tempfile.mkdtemp(prefix="ddtree-tune-"))
        env |= {GRACE_VARIABLE: str(spec.stop_grace_s), EXIT_VARIABLE: str(folder / EXIT_FILE)}
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
        self._running = Launched(plan, process, folder, time.monotonic(), deadline_s)

    def ready(self, wait_s: float) -> Starting | EngineHandle:
        """Wait for the launched server, a while at most; see ``ports.Engine``.

        Raises:
            EngineError: it ended, its log says that it is lost, or the deadline has passed.
        """
        running = self._held()
        until = time.monotonic() + wait_s
        phase = running.seen.phase
        asked = 0.0
        while True:
            if (fault := running.fault()) is not None:
                raise EngineError(fault.reason, fault.failure)
            if time.monotonic() - asked > HEALTH_PERIOD_S[self._spec.engine.kind] and listening(
                running.plan.port, self._host
            ):
                asked = time.monotonic()
                _refuse_others(running)
                if _answers(running.plan):
                    running.ready = True
                    break
            if running.seconds > running.deadline_s:
                raise EngineError(
                    f"the server must be ready within {running.deadline_s:.0f} s, but got no answer on "
                    f"{running.plan.base_url}/health while {running.seen.phase}; raise engine.start_deadline_s or read "
                    "the log",
                    FailureClass.STARTUP_TIMEOUT,
                )
            if time.monotonic() > until or running.seen.phase != phase:
                return Starting(running.seen.phase, running.seconds, running.deadline_s)
            time.sleep(POLL_S)
        return EngineHandle(
            endpoint=Endpoint(
                running.plan.base_url,
                running.plan.served_model_name,
                template_options=tuple(sorted(self._spec.engine.chat_template_kwargs.items())),
                host_name=socket.gethostname(),
            ),
            plan=running.plan,
            pid=running.process.pid,
            node_id=self._node_id,
            ready_s=running.seconds,
        )

    def probe(self, handle: EngineHandle) -> Probe:
        """Gather what the gate judges, within the gate's deadline.

        Raises:
            EngineError: the server ended meanwhile, or does not say what it is.
        """
        owned = owns_port(_tree(handle.pid), handle.plan.port)
        spec, alive = self._spec, self.state().alive
        asked = run_probe(
            handle.endpoint, spec.gate, spec.max_concurrency, alive=alive, port_owned=owned, engine=spec.engine
        )
        try:
            with boundary(EngineError, "probe the server"):
                return asyncio.run(asked)
        except EngineError:
            if (fault := self._held().fault()) is not None:
                raise EngineError(fault.reason, fault.failure) from None
            raise

    def state(self) -> EngineState:
        """Say how the server is doing; not alive when none was launched."""
        running = self._running
        if running is None:
            return EngineState(alive=False, reason="no server was launched")
        fault = running.fault()
        seen = running.seen
        if fault is None:
            return EngineState(alive=True, log_tail=seen.tail, graphs=seen.graphs)
        return EngineState(
            alive=False,
            exit_code=running.exit_code(),
            failure=fault.failure,
            reason=fault.reason,
            log_tail=seen.tail,
            graphs=seen.graphs,
        )

    def stop(self) -> str:
        """End the server and all its processes; return the end of its log.

        Raises:
            EngineError: a port did not come free.
        """
        running, self._running = self._running, None
        if running is None:
            return ""
        if running.process.stdin:
            running.process.stdin.close()
        spec = self._spec.engine
        try:
            running.process.wait(spec.stop_grace_s + 5)
        except subprocess.TimeoutExpired:
            running.process.kill()  # its death kills the server through the kernel
            running.process.wait()
        log = running.log.read_bytes()[-LOG_KEPT_BYTES:].decode(errors="replace")
        shutil.rmtree(running.folder, ignore_errors=True)
        wait_free((running.plan.port, *running.plan.further_ports), spec.release_s, self._host)
        return log

    def _held(self) -> Launched:
        if self._running is None:
            raise EngineError("a server must be launched first, but got a call before launch")
        return self._running


def refuse_faked(env: Mapping[str, str]) -> None:
    """Raise EngineError (`dirty_node`) if servers of this environment would report an acceptance that is made up."""
    if env.get(FAKED_ACCEPTANCE, "0") not in {"", "0"}:
        raise EngineError(
            f"{FAKED_ACCEPTANCE}, which fakes acceptance, must not be set on a node that is measured, but got "
            f"{env[FAKED_ACCEPTANCE]}; unset it where the node's processes start",
            FailureClass.DIRTY_NODE,
        )


def _answers(plan: LaunchPlan) -> bool:
    """Whether the server says that it is well."""

    async def ask() -> bool:
        at = Endpoint(plan.base_url, plan.served_model_name)
        async with EngineClient(at, timeout_s=HEALTH_S, stall_s=HEALTH_S) as client:
            try:
                await client.get_text("/health")
            except EngineError:
                return False
            return True

    return asyncio.run(ask())


def _refuse_others(running: Launched) -> None:
    """Ask nothing of a server that is not the one launched: a stale one would answer just as well.

    Raises:
        EngineError: another process listens on the port (`port_conflict`).
    """
    port = running.plan.port
    if owns_port(_tree(running.process.pid), port) is False and running.process.poll() is None:
        raise EngineError(
            f"port {port} must be the launched server's, but got another process that listens there; see who it is "
            "with ss -ltnp. A command that has a daemon start the server, as docker run does, does not own it: run the "
            "trials inside the container",
            FailureClass.PORT_CONFLICT,
        )


def _tree(pid: int) -> set[int]:
    """A process and its descendants."""
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return {pid}


def _weight_bytes(model: str | None) -> int | None:
    """Size of a model's folder; None for what is none here, as a name on a hub."""
    folder = Path(model) if model is not None else None
    if folder is None or not folder.is_dir():
        return None
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
