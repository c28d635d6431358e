"""Actors that send load, grade and keep records: each calls node and returns core types."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from ddtree_tune.cluster.placement import here
from ddtree_tune.cluster.room import WORKER_RESOURCES
from ddtree_tune.core.errors import GradeError, LoadError, StoreError, TuneError
from ddtree_tune.node.grader import NodeGrader
from ddtree_tune.node.loadgen import NodeLoader
from ddtree_tune.node.store import Store
from ddtree_tune.ports import CHECK_PERIOD_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.actor import ActorHandle

    from ddtree_tune.core.cluster_spec import LoadOn
    from ddtree_tune.core.coding import Attempt
    from ddtree_tune.core.coding_spec import CodingSpec
    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import LoadSpec
    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.ports import Check


class Worker:
    """Runs one of a node's ports in a process of its own.

    A plain class around the port, because Ray runs every method of a class that has a coroutine on
    an event loop, and the ports start loops of their own.
    """

    def __init__(self, kind: type[NodeLoader | NodeGrader], *arguments: Any, **named: Any) -> None:
        self._port = kind(*arguments, **named)

    def run(self, *arguments: Any) -> Any:
        """Call the port."""
        return self._port.run(*arguments)

    def clock_ns(self) -> int:
        """The clock of this process, which is its machine's."""
        return time.perf_counter_ns()


STORE_TRIES = 3
"""Times that a record is written again because the store's process died."""
PLACED_S = 120.0
"""For a worker to start; longer only where no node has room for it, as when the machine for load is gone."""
CLOCK_TRIES = 8
"""Comparisons of two clocks; the one with the shortest round trip counts."""

_WorkerActor = ray.remote(Worker)
_StoreActor = ray.remote(Store)


class Watched:
    """A worker's actor, given up as soon as what it works on is gone or it breaks; the next run gets a new one."""

    def __init__(self, name: str, *arguments: Any, load_on: LoadOn = "engine_node", **named: Any) -> None:
        self._name = name
        self._made_of = (arguments, named)
        self._resources = WORKER_RESOURCES[load_on]
        self._made = 0
        self._actor: ActorHandle[Any] | None = None

    def run(self, check: Check, kind: type[TuneError], who: str, *arguments: Any) -> Any:
        """Run the port; ``kind`` is raised if the actor itself breaks."""
        actor = self._actor = self._actor or self._make()
        try:
            self._await_place(actor, check, kind, who)
            pending = actor.run.remote(*arguments)
            while not ray.wait([pending], timeout=CHECK_PERIOD_S)[0]:
                check()
        except BaseException:  # whatever ends this run: the next one must not wait for it
            self._give_up(actor)
            raise
        try:
            return _result(pending, kind, who)
        except TuneError as error:
            if isinstance(error, kind):
                self._give_up(actor)
            check()  # a server that is gone is the reason, what the port met is its consequence
            raise

    def clock(self, kind: type[TuneError], who: str) -> tuple[int, int]:
        """How far the clock of the worker's machine is ahead of ours, and half the round trip; both in ns."""
        found = []
        for _ in range(CLOCK_TRIES):
            before_ns = time.perf_counter_ns()
            there_ns = _result((self._actor or self._make()).clock_ns.remote(), kind, who)
            after_ns = time.perf_counter_ns()
            found.append(((after_ns - before_ns) // 2, there_ns - (before_ns + after_ns) // 2))
        error_ns, ahead_ns = min(found)
        return ahead_ns, error_ns

    def _await_place(self, actor: ActorHandle[Any], check: Check, kind: type[TuneError], who: str) -> None:
        started = actor.clock_ns.remote()
        deadline = time.monotonic() + PLACED_S
        while not ray.wait([started], timeout=CHECK_PERIOD_S)[0]:
            check()
            if time.monotonic() > deadline:
                wanted = "".join(f" and {name}: {amount:g}" for name, amount in self._resources.items())
                raise kind(f"{who} must start within {PLACED_S:g} s, but got no node that has CPU: 1{wanted} free")

    def _give_up(self, actor: ActorHandle[Any]) -> None:
        self._actor = None
        ray.kill(actor)

    def _make(self) -> ActorHandle[Any]:
        arguments, named = self._made_of
        self._made += 1  # in the name: a dead actor's is not free at once
        name = self._name if self._made == 1 else f"{self._name}-{self._made}"
        actor: ActorHandle[Any] = _WorkerActor.options(num_cpus=1, resources=self._resources, name=name).remote(
            *arguments, **named
        )
        return actor


class RemoteLoader:
    """``ports.Loader`` in an actor of its own, so that nothing else runs in the client's process.

    All times of a run are of the actor's machine. Where that is another one than the server's, the
    difference of the two clocks is kept with the run: what the GPUs did is on the server's.
    """

    def __init__(
        self, load: LoadSpec, *, seed: int, stall_s: float, name: str, load_on: LoadOn = "engine_node"
    ) -> None:
        self._worker = Watched(name, NodeLoader, load, load_on=load_on, seed=seed, stall_s=stall_s)
        self._away = load_on != "engine_node"

    def run(self, endpoint: Endpoint, cell: Cell, repeat: int, check: Check) -> CellRun:
        """See ``ports.Loader``."""
        who = "the load actor"
        result: CellRun = self._worker.run(check, LoadError, who, endpoint, cell, repeat)
        if not self._away or result.route is None:
            return result
        ahead_ns, error_ns = self._worker.clock(LoadError, who)
        return replace(result, route=replace(result.route, clock_ahead_ns=ahead_ns, clock_error_ns=error_ns))


class RemoteGrader:
    """``ports.Grader`` in an actor of its own."""

    def __init__(
        self,
        coding: CodingSpec,
        *,
        served: int,
        seed: int,
        stall_s: float,
        name: str,
        load_on: LoadOn = "engine_node",
    ) -> None:
        self._worker = Watched(name, NodeGrader, coding, load_on=load_on, served=served, seed=seed, stall_s=stall_s)

    def run(self, endpoint: Endpoint, check: Check) -> Sequence[Attempt]:
        """See ``ports.Grader``."""
        result: Sequence[Attempt] = self._worker.run(check, GradeError, "the grading actor", endpoint)
        return result


class RemoteSink:
    """``ports.Sink`` on the driver's node, wherever the trial runs: nodes need no shared disk."""

    def __init__(self, store: ActorHandle[Any]) -> None:
        self._store = store

    def write(self, record: TrialRecord) -> None:
        """See ``ports.Sink``; returns once the record is on disk."""
        _result(self._store.write.remote(record), StoreError, "the store")


def store_actor(store: Store) -> ActorHandle[Any]:
    """Put a store into an actor on this node; it may die, for a record that is written twice is the same."""
    options = _StoreActor.options(
        num_cpus=0, name="store", scheduling_strategy=here(), max_restarts=-1, max_task_retries=STORE_TRIES
    )
    actor: ActorHandle[Any] = options.remote(store.root)
    return actor


def _result(reference: Any, kind: type[TuneError], who: str) -> Any:
    """An actor's result; its own errors come through as they were raised."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, TuneError):
            raise error.cause from None
        raise kind(f"{who} failed: {error.cause!r}") from None
    except RayError as error:
        raise kind(f"{who} is gone: {type(error).__name__}") from None
