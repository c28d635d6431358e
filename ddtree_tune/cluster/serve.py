"""A Ray Serve deployment that owns the engine processes of a node, one at a time.

One application serves all trials of a trial process: deploying it takes seconds, and every trial
still has an engine of its own. Serve restarts a replica that dies, silently and within seconds; the
new replica holds no engine and starts none until a trial asks, so nothing can answer under the name
of a trial whose replica died.

The trial's process owns a lease. When the lease is gone, because that process or its driver died,
the replica stops its engine and deletes its own application: Serve itself would keep it for ever.
Where the whole node died, nobody is left to do that but the driver, see ``delete_stranded``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError, RayTaskError

from ddtree_tune.cluster.lease import lease_actor
from ddtree_tune.cluster.placement import this_address, this_node
from ddtree_tune.core.errors import EngineError, FailureClass, TuneError
from ddtree_tune.node.engine import NodeEngine
from ddtree_tune.node.sockets import HOST

if TYPE_CHECKING:
    from collections.abc import Collection

    from ray.actor import ActorHandle
    from ray.serve.handle import DeploymentHandle

    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import EngineConfig, EngineHandle, EngineState, Starting
    from ddtree_tune.core.gate import Probe
    from ddtree_tune.core.spec import SweepSpec

LEASE_PERIOD_S = 0.5
REPLY_S = 30.0
"""How long a replica may take beyond what the call itself may take."""
_LOST = FailureClass.NODE_LOST
_PREFIX = "engine-"
_NODE_CHARS = 8
"""Of a node's id in the name of an application."""


class EngineServer:
    """The replica: ``NodeEngine`` behind Serve's handle, tied to the lease."""

    def __init__(self, lease: ActorHandle[Any], spec: SweepSpec, dialect: Dialect, app: str) -> None:
        self._lease = lease
        self._spec = spec
        self._dialect = dialect
        self._app = app
        self._engine: NodeEngine | None = None
        threading.Thread(target=self._watch, name="lease", daemon=True).start()

    async def launch(self, config: EngineConfig, name: str) -> None:
        """Launch the engine of the trial of this name, once no other is left; see ``ports.Engine``."""
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)
        host = HOST if self._spec.cluster.load_on == "engine_node" else this_address()
        self._engine = NodeEngine(self._spec, self._dialect, name=name, node_id=this_node(), host=host)
        await asyncio.to_thread(self._engine.launch, config)

    async def ready(self, wait_s: float) -> Starting | EngineHandle:
        """See ``ports.Engine``."""
        return await asyncio.to_thread(self._held().ready, wait_s)

    async def probe(self, handle: EngineHandle) -> Probe:
        """See ``ports.Engine``."""
        return await asyncio.to_thread(self._held().probe, handle)

    async def state(self) -> EngineState:
        """See ``ports.Engine``."""
        return await asyncio.to_thread(self._held().state)

    async def stop(self) -> str:
        """See ``ports.Engine``."""
        return await asyncio.to_thread(self._held().stop)

    def _held(self) -> NodeEngine:
        if self._engine is None:
            raise EngineError("the engine's replica died, its engine with it, and Serve restarted it", _LOST)
        return self._engine

    def _watch(self) -> None:
        while True:
            try:
                ray.get(self._lease.ping.remote())
            except RayActorError:
                if self._engine is not None:
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


class EngineApp:
    """The Serve application of one trial process, on its node; lives as long as that process."""

    def __init__(self, spec: SweepSpec, dialect: Dialect, *, name: str) -> None:
        """Prepare it.

        Args:
            spec: the sweep.
            dialect: how its engine spells the knobs.
            name: what follows the node in its name; unlike any other's on this node.
        """
        self.spec = spec
        self.name = f"{_PREFIX}{this_node()[:_NODE_CHARS]}-{name}"
        self._dialect = dialect
        self._lease = lease_actor(name)
        self._handle: DeploymentHandle[Any] | None = None

    def deployed(self) -> DeploymentHandle[Any]:
        """The application's handle; deploys it first if it is not there.

        Raises:
            EngineError: Serve cannot deploy it.
        """
        if self._handle is None:
            placed = _deployment.options(
                name=self.name, ray_actor_options={"num_cpus": 0, "label_selector": {"ray.io/node-id": this_node()}}
            )
            bound = placed.bind(self._lease, self.spec, self._dialect, self.name)
            try:
                self._handle = serve.run(bound, name=self.name, route_prefix=None)
            except RuntimeError as error:
                raise EngineError(f"Serve must deploy {self.name}, but got: {error}", _LOST) from None
        return self._handle

    def delete(self) -> None:
        """Delete the application; whatever engine is left ends with it. Safe to call twice."""
        if self._handle is not None:
            self._handle = None
            serve.delete(self.name)


def delete_stranded(live: Collection[str]) -> None:
    """Delete applications whose node is gone: Serve would wait for that node for ever.

    Args:
        live: ids of the nodes that are alive.
    """
    nodes = {node[:_NODE_CHARS] for node in live}
    for name in serve.status().applications:
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).partition("-")[0] not in nodes:
            serve.delete(name, _blocking=False)


class ServedEngine:
    """``ports.Engine`` of one trial over the application of its process."""

    def __init__(self, app: EngineApp, *, name: str) -> None:
        self._app = app
        self._name = name
        self._handle: DeploymentHandle[Any] | None = None

    def launch(self, config: EngineConfig) -> None:
        """Launch the server in the replica."""
        self._handle = self._app.deployed()
        _reply(self._handle.launch.remote(config, self._name), REPLY_S)

    def ready(self, wait_s: float) -> Starting | EngineHandle:
        """See ``ports.Engine``."""
        found: Starting | EngineHandle = _reply(self._deployed().ready.remote(wait_s), wait_s + REPLY_S)
        return found

    def probe(self, handle: EngineHandle) -> Probe:
        """See ``ports.Engine``."""
        seen: Probe = _reply(self._deployed().probe.remote(handle), self._app.spec.gate.deadline_s + REPLY_S)
        return seen

    def state(self) -> EngineState:
        """See ``ports.Engine``."""
        state: EngineState = _reply(self._deployed().state.remote(), REPLY_S)
        return state

    def stop(self) -> str:
        """Stop the server; an application that cannot say that it did is deleted."""
        handle, self._handle = self._handle, None
        if handle is None:
            return ""
        spec = self._app.spec.engine
        try:
            log: str = _reply(handle.stop.remote(), spec.stop_grace_s + spec.release_s + REPLY_S)
        except EngineError:
            self._app.delete()
            raise
        return log

    def _deployed(self) -> DeploymentHandle[Any]:
        if self._handle is None:
            raise EngineError(f"the engine of {self._name} must be started first, but got a call before start")
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
        raise EngineError(f"the engine's replica must answer within {limit_s:g} s, but got silence", _LOST) from None
    except RayError as error:
        raise EngineError(f"the engine's replica is gone: {type(error).__name__}", _LOST) from None
