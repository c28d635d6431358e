"""Joins or starts Ray, and says what a trial reserves.

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
    from collections.abc import Iterator

NODE_RESOURCE = "sweep_node"
LOGICAL_CPUS = 8
"""Of an embedded Ray: its CPUs are bookkeeping, the actors of a trial idle most of the time."""


@contextmanager
def connected() -> Iterator[int]:
    """Ray and Serve for a sweep.

    Yields:
        How many exclusive nodes there are.

    Raises:
        PlacementError: the cluster has no node with the resource.
    """
    with joined():
        nodes = int(ray.cluster_resources().get(NODE_RESOURCE, 0))
        if nodes < 1:
            raise PlacementError(
                f"the cluster must have nodes with the custom resource {NODE_RESOURCE}: 1, but got none; "
                "see available_node_types in cluster.yaml"
            )
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
        ray.init(logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()  # an embedded Serve ends with it


def trial_resources() -> tune.PlacementGroupFactory:
    """One exclusive node, with room beside it for the trial, its load actor and its grader."""
    return tune.PlacementGroupFactory([{"CPU": 1, NODE_RESOURCE: 1}, {"CPU": 1}, {"CPU": 1}], strategy="STRICT_PACK")


def this_node() -> str:
    """Id of the node that the caller runs on."""
    return str(ray.get_runtime_context().get_node_id())


def here() -> NodeAffinitySchedulingStrategy:
    """Schedules an actor on the caller's own node."""
    return NodeAffinitySchedulingStrategy(node_id=this_node(), soft=False)
