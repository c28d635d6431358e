"""Joins or starts Ray, counts its exclusive nodes, and says what a trial reserves.

A trial holds one ``sweep_node``, a custom resource of which every node has exactly one: that is
what makes the node exclusive.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray
from ray import serve, tune
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ddtree_tune.core.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NODE_RESOURCE = "sweep_node"
LOGICAL_CPUS = 8
"""Of an embedded Ray: its CPUs are bookkeeping, the actors of a trial idle most of the time."""
_BUNDLES = ({"CPU": 1, NODE_RESOURCE: 1}, {"CPU": 1}, {"CPU": 1})
"""The trial, its load actor and its grader."""
_KIND = "accelerator_type:"
"""How Ray's resources name the GPUs of a node."""


@contextmanager
def connected() -> Iterator[int]:
    """Ray and Serve for a sweep.

    Yields:
        How many exclusive nodes there are; in a cluster they may still be on their way.

    Raises:
        PlacementError: nodes cannot be exclusive, or are of different kinds.
    """
    with joined():
        nodes = nodes_up()
        # No proxy: Serve owns the engine's life, the load goes straight to its port.
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
        yield nodes


@contextmanager
def joined() -> Iterator[None]:
    """Join the cluster that this job belongs to, or start an embedded Ray on loopback."""
    embedded = "RAY_ADDRESS" not in os.environ
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if embedded:
        # address="local": without it Ray attaches to whatever cluster its temp folder names, even a dead one.
        ray.init(
            address="local",
            num_cpus=LOGICAL_CPUS,
            resources={NODE_RESOURCE: 1},
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
        )
    else:
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()  # an embedded Serve ends with it


def submitted() -> bool:
    """Whether this process is the entrypoint of a job: its working directory is a copy that goes away."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def nodes_up() -> int:
    """How many exclusive nodes are alive now.

    Raises:
        PlacementError: see ``count_exclusive``.
    """
    return count_exclusive(list(live_nodes().values()))


def live_nodes() -> dict[str, dict[str, float]]:
    """What each node that is alive offers, by its id."""
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def count_exclusive(resources: Sequence[Mapping[str, float]]) -> int:
    """How many nodes of a cluster a sweep may use.

    Args:
        resources: of every node that is alive.

    Raises:
        PlacementError: a node could be given to two trials, or trials would not compare, because the
            nodes have different accelerators.
    """
    offers = [offer for offer in resources if NODE_RESOURCE in offer]
    shared = [offer[NODE_RESOURCE] for offer in offers if offer[NODE_RESOURCE] != 1]
    if shared:
        raise PlacementError(
            f"every node must offer {NODE_RESOURCE}: 1, which makes it exclusive, but got {shared[0]:g} on one; "
            "see available_node_types in cluster.yaml"
        )
    kinds = {frozenset(name.removeprefix(_KIND) for name in offer if name.startswith(_KIND)) for offer in offers}
    if len(kinds) > 1:
        names = sorted(", ".join(sorted(kind)) or "no accelerator" for kind in kinds)
        raise PlacementError(
            f"the nodes of one sweep must be of one kind, but got {' beside '.join(names)}; "
            f"offer {NODE_RESOURCE} on one kind only, or start a cluster for each"
        )
    return len(offers)


def obstacle(nodes: int) -> str:
    """Why no trial can start, as far as the number of nodes says."""
    if nodes == 0:
        return f"no node that offers {NODE_RESOURCE}: 1 is up"
    cpus = sum(bundle["CPU"] for bundle in _BUNDLES)
    return (
        f"{nodes} node{'s' * (nodes > 1)} up, and none has room: a trial needs {NODE_RESOURCE}: 1 and CPU: {cpus} free "
        "on one node"
    )


def trial_resources() -> tune.PlacementGroupFactory:
    """One exclusive node, with room beside it for the trial, its load actor and its grader."""
    return tune.PlacementGroupFactory([dict(bundle) for bundle in _BUNDLES], strategy="STRICT_PACK")


def this_node() -> str:
    """Id of the node that the caller runs on."""
    return str(ray.get_runtime_context().get_node_id())


def here() -> NodeAffinitySchedulingStrategy:
    """Schedules an actor on the caller's own node."""
    return NodeAffinitySchedulingStrategy(node_id=this_node(), soft=False)
