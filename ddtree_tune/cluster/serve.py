"""A Ray Serve deployment that owns one engine process on a trial's node.

Serve restarts a replica that dies, silently and within seconds; a restarted engine would be another
server under the trial's name. So the trial's process owns a lease, each replica claims its
application there, and only the first one may start an engine. When the lease is gone, because that
process or its driver died, the replica stops its engine and deletes its own application: Serve
itself would keep it for ever.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError, RayTaskError

from ddtree_tune.cluster.placement import this_node
from ddtree_tune.core.errors import EngineError, FailureClass, TuneError
from ddtree_tune.node.engine import NodeEngine

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.serve.handle import DeploymentHandle

    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import EngineConfig, EngineHandle, EngineState
    from ddtree_tune.core.gate import Probe
    from ddtree_tune.core.spec import SweepSpec

LEASE_PERIOD_S = 0.5
REPLY_S = 30.0
"""How long a replica may take beyond what the call itself may take."""


class Lease:
    """Held by the process that runs trials; whoever can no longer reach it has no trial to serve."""

    def __init__(self) -> None:
        self._claimed: set[str] = set()

    def claim(self, app: str) -> bool:
        """Whether the caller is the first replica of this application."""
        first = app not in self._claimed
        self._claimed.add(app)
        return first

    def ping(self) -> None:
        """Answer while the trial lives."""


_LeaseActor = ray.remote(Lease)


def new_lease(name: str) -> ActorHandle[Any]:
    """A lease that lives as long as the process that asks for it."""
    return _LeaseActor.options(num_cpus=0, name=name).remote()


class EngineServer:
    """The replica: ``NodeEngine`` behind Serve's handle, tied to the lease."""

    def __init__(self, lease: ActorHandle[Any], spec: SweepSpec, dialect: Dialect, app: str) -> None:
        self._lease = lease
        self._app = app
        self._first: bool = ray.get(lease.claim.remote(app))
        self._engine = NodeEngine(spec, dialect, name=app, node_id=this_node())
        threading.Thread(target=self._watch, name="lease", daemon=True).start()

    async def start(self, config: EngineConfig) -> EngineHandle:
        """See ``ports.Engine``."""
        if not self._first:
            raise EngineError("the engine's replica died and Serve restarted it", FailureClass.NODE_LOST)
        return await asyncio.to_thread(self._engine.start, config)

    async def probe(self, handle: EngineHandle) -> Probe:
        """See ``ports.Engine``."""
        return await asyncio.to_thread(self._engine.probe, handle)

    async def state(self) -> EngineState:
        """See ``ports.Engine``."""
        return await asyncio.to_thread(self._engine.state)

    async def stop(self) -> str:
        """See ``ports.Engine``."""
        return await asyncio.to_thread(self._engine.stop)

    def _watch(self) -> None:
        while True:
            try:
                ray.get(self._lease.ping.remote())
            except RayActorError:
                self._engine.stop()
                serve.delete(self._app, _blocking=False)
                return
            time.sleep(LEASE_PERIOD_S)


_deployment = serve.deployment(
    EngineServer,
    num_replicas=1,
    max_ongoing_requests=8,
    max_constructor_retry_count=1,
    health_check_period_s=2,
    health_check_timeout_s=10,
    graceful_shutdown_timeout_s=10,
    graceful_shutdown_wait_loop_s=0.1,
)


class ServedEngine:
    """``ports.Engine`` over a Serve application of this trial, on this trial's node."""

    def __init__(self, spec: SweepSpec, dialect: Dialect, *, app: str, lease: ActorHandle[Any]) -> None:
        self._spec = spec
        self._dialect = dialect
        self._app = app
        self._lease = lease
        self._handle: DeploymentHandle[Any] | None = None

    def start(self, config: EngineConfig) -> EngineHandle:
        """Deploy the replica, then launch the server in it."""
        placed = _deployment.options(
            name=self._app, ray_actor_options={"num_cpus": 0, "label_selector": {"ray.io/node-id": this_node()}}
        )
        try:
            self._handle = serve.run(
                placed.bind(self._lease, self._spec, self._dialect, self._app), name=self._app, route_prefix=None
            )
        except RuntimeError as error:
            raise EngineError(f"Serve must deploy {self._app}, but got: {error}", FailureClass.NODE_LOST) from None
        started: EngineHandle = _reply(self._handle.start.remote(config), self._spec.engine.start_deadline_s + REPLY_S)
        return started

    def probe(self, handle: EngineHandle) -> Probe:
        """See ``ports.Engine``."""
        seen: Probe = _reply(self._deployed().probe.remote(handle), self._spec.gate.deadline_s + REPLY_S)
        return seen

    def state(self) -> EngineState:
        """See ``ports.Engine``."""
        state: EngineState = _reply(self._deployed().state.remote(), REPLY_S)
        return state

    def stop(self) -> str:
        """Stop the server and delete the application."""
        handle, self._handle = self._handle, None
        if handle is None:
            return ""
        try:
            log: str = _reply(handle.stop.remote(), 2 * self._spec.engine.stop_grace_s + REPLY_S)
        finally:
            serve.delete(self._app)
        return log

    def _deployed(self) -> DeploymentHandle[Any]:
        if self._handle is None:
            raise EngineError(f"{self._app} must be deployed first, but got a call before start")
        return self._handle


def _reply(response: Any, limit_s: float) -> Any:
    """Wait for a replica's answer; its own errors come through as they were raised."""
    try:
        return response.result(timeout_s=limit_s)
    except RayTaskError as error:
        if isinstance(error.cause, TuneError):
            raise error.cause from None
        raise EngineError(f"the engine's replica failed: {error.cause!r}") from None
    except TimeoutError:
        raise EngineError(
            f"the engine's replica must answer within {limit_s:g} s, but got silence", FailureClass.NODE_LOST
        ) from None
    except RayError as error:
        raise EngineError(f"the engine's replica is gone: {type(error).__name__}", FailureClass.NODE_LOST) from None
