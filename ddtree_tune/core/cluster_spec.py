"""The section of a spec that says where the parts of a trial run."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ddtree_tune.core.fields import Strict

LoadOn: TypeAlias = Literal["engine_node", "load_nodes"]


class ClusterSpec(Strict):
    """Where the parts of a trial run."""

    load_on: LoadOn = "engine_node"
    """``engine_node``: load and grading run beside the server, which listens on loopback alone. ``load_nodes``: on
    nodes that offer ``load_node`` and no ``sweep_node``; the server then listens on its node's address."""
