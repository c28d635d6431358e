"""What is where in a cluster.

Every process of a trial imports this, so it imports neither Serve nor Tune, which take seconds.
"""

from __future__ import annotations

import os

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def submitted() -> bool:
    """Whether this process is the entrypoint of a job: its working directory is a copy that goes away."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def live_nodes() -> dict[str, dict[str, float]]:
    """What each node that is alive offers, by its id."""
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def this_node() -> str:
    """Id of the node that the caller runs on."""
    return str(ray.get_runtime_context().get_node_id())


def this_address() -> str:
    """The address of the caller's own node, as Ray and the other nodes know it."""
    return str(ray.util.get_node_ip_address())


def here() -> NodeAffinitySchedulingStrategy:
    """Schedules an actor on the caller's own node."""
    return NodeAffinitySchedulingStrategy(node_id=this_node(), soft=False)
