"""Joins or starts Ray, and Serve on it."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray
from ray import serve
from ray.exceptions import ActorAlreadyExistsError, RayError

from ddtree_tune.cluster.placement import live_nodes
from ddtree_tune.cluster.room import NODE_RESOURCE, Room
from ddtree_tune.core.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddtree_tune.core.cluster_spec import LoadOn

LOGICAL_CPUS = 8
"""Of an embedded Ray: its CPUs are bookkeeping, the actors of a trial idle most of the time."""
LISTENS_S = 10.0
REASON_CHARS = 200
_REFUSALS = (OSError, OverflowError, RuntimeError, ValueError, RayError)
"""Nobody there, a port that is none, another version, an address that is none, a token."""
SERVE_S = 30.0
"""For another sweep's Serve to come up."""


@contextmanager
def connected(load_on: LoadOn = "engine_node") -> Iterator[int]:
    """Ray and Serve for a sweep.

    Args:
        load_on: where its load comes from.

    Yields:
        How many trials can run at a time; in a cluster nodes may still be on their way.

    Raises:
        PlacementError: nodes cannot be exclusive or are of different kinds, or there are no machines for load.
    """
    if load_on == "load_nodes" and _embedded():
        raise PlacementError(
            "cluster.load_on: load_nodes must have a cluster whose nodes offer load_node, but got an embedded Ray of "
            "this machine alone; set RAY_ADDRESS, submit the sweep as a job, or use load_on: engine_node"
        )
    with joined():
        nodes = Room.of(list(live_nodes().values()), load_on).trials
        _start_serve()
        yield nodes


@contextmanager
def joined() -> Iterator[None]:
    """Join the cluster that this job belongs to, or start an embedded Ray on loopback."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if _embedded():
        _embed()
    else:
        _join()
    try:
        yield
    finally:
        ray.shutdown()  # an embedded Serve ends with it


def _embed() -> None:
    """Start a Ray of our own."""
    try:
        # address="local": without it Ray attaches to whatever cluster its temp folder names, even a dead one.
        ray.init(
            address="local",
            num_cpus=LOGICAL_CPUS,
            resources={NODE_RESOURCE: 1},
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
            # Ray's workers step back for all else that runs (nice 15). Ours measure, and a server is one's child.
            _system_config={"worker_niceness": 0},
        )
    except _REFUSALS as error:
        raise PlacementError(
            f"Ray must be able to start on this machine, but got {_reason(error)}; correct what it names, or set "
            "RAY_ADDRESS to a cluster"
        ) from None


def _join() -> None:
    """Join the cluster that ``RAY_ADDRESS`` names."""
    address = os.environ["RAY_ADDRESS"]
    try:
        host, colon, port = address.rpartition(":")
        if colon and "/" not in host and port.isdecimal():  # Ray itself tries for minutes where nobody listens
            socket.create_connection((host.strip("[]"), int(port)), LISTENS_S).close()
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    except _REFUSALS as error:
        raise PlacementError(
            f"RAY_ADDRESS must name a running cluster of Ray {ray.__version__} that lets this machine in, but got "
            f"{address}: {_reason(error)}; start the cluster, correct the address, give its "
            "token, or unset RAY_ADDRESS for an embedded Ray"
        ) from None


def _reason(error: BaseException) -> str:
    """What Ray says, in one line."""
    return " ".join(str(error.__cause__ or error).split())[:REASON_CHARS]


def _start_serve() -> None:
    """Start Serve, or join the one that another sweep of this cluster has started."""
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    deadline = time.monotonic() + SERVE_S
    while True:
        try:
            # No proxy: Serve owns the engine's life, the load goes straight to its port.
            serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
        except ActorAlreadyExistsError:  # two sweeps that start at once: the other one was first
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


def _embedded() -> bool:
    return "RAY_ADDRESS" not in os.environ
