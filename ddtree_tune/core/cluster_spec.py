"""The section of a spec that says where the parts of a trial run."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ddtree_tune.core.fields import Strict

LoadOn: TypeAlias = Literal["engine_node", "load_nodes"]


class ClusterSpec(Strict):
    """Where the parts of a trial run."""

    load_on: LoadOn = "engine_node"
    """``engine_node``: load and grading run beside the server, which listens on loopback alone. ``load_nodes``: on
    nodes that offer ``load_node`` and no ``sweep_node``; the server then listens on its node's address."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of each node, all held by its trial; when absent as many as the nodes have that are up at the start."""
