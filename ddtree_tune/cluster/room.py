"""What a trial reserves, and how many trials a cluster has room for.

A trial holds one ``sweep_node``, a custom resource of which every node has exactly one: that is
what makes the node exclusive among sweeps. It also holds all GPUs of its node, so that no other work
of the cluster gets one. Where the spec wants its load to come from another machine, the trial
holds one ``load_node`` too, of which a machine for load offers as many as it can serve trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddtree_tune.core.cluster_spec import LoadOn

NODE_RESOURCE = "sweep_node"
LOAD_RESOURCE = "load_node"
_BUNDLES: dict[LoadOn, tuple[dict[str, float], ...]] = {
    "engine_node": ({"CPU": 1, NODE_RESOURCE: 1}, {"CPU": 1}, {"CPU": 1}),
    "load_nodes": ({"CPU": 1, NODE_RESOURCE: 1}, {"CPU": 2, LOAD_RESOURCE: 1}),
}
"""The trial, its load actor and its grader."""
WORKER_RESOURCES: dict[LoadOn, dict[str, float]] = {"engine_node": {}, "load_nodes": {LOAD_RESOURCE: 0.5}}
"""What a load actor or a grader takes beside its processor."""
_GPU = "GPU"
_KIND = "accelerator_type:"
"""How Ray's resources name the GPUs of a node."""


def count_exclusive(resources: Sequence[Mapping[str, float]]) -> int:
    """How many nodes of a cluster a sweep may use.

    Args:
        resources: of every node that is alive.

    Raises:
        PlacementError: a node could be given to two trials, or trials would not compare, because the
            nodes have different accelerators, or not as many.
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
    gpus = sorted({offer.get(_GPU, 0.0) for offer in offers})
    if len(gpus) > 1:
        found = " beside ".join(f"{one:g}" for one in gpus)
        raise PlacementError(
            f"the nodes of one sweep must have as many GPUs each, but got {found}; "
            f"offer {NODE_RESOURCE} on nodes of one kind only"
        )
    return len(offers)


@dataclass(frozen=True, slots=True)
class Room:
    """What a cluster has for trials now."""

    load_on: LoadOn
    nodes: int
    """Exclusive nodes."""
    gpus: int = 0
    """Of each node; 0 where none is up."""
    seats: int | None = None
    """Trials whose load the machines for load can send; None where load comes from the trial's own node."""

    @classmethod
    def of(cls, resources: Sequence[Mapping[str, float]], load_on: LoadOn) -> Room:
        """Count what the nodes offer.

        Args:
            resources: of every node that is alive.
            load_on: where the load of the sweep comes from.

        Raises:
            PlacementError: see ``count_exclusive``; or the load of one trial could disturb another's server.
        """
        nodes = count_exclusive(resources)
        gpus = max((int(offer.get(_GPU, 0)) for offer in resources if NODE_RESOURCE in offer), default=0)
        if load_on == "engine_node":
            return cls(load_on, nodes, gpus)
        if any(NODE_RESOURCE in offer and LOAD_RESOURCE in offer for offer in resources):
            raise PlacementError(
                f"a node must offer {NODE_RESOURCE} or {LOAD_RESOURCE}, but got one with both: the load of one trial "
                "would disturb the server of another"
            )
        return cls(load_on, nodes, gpus, sum(int(offer.get(LOAD_RESOURCE, 0)) for offer in resources))

    @property
    def trials(self) -> int:
        """How many can run at a time."""
        return self.nodes if self.seats is None else min(self.nodes, self.seats)

    def gpus_held(self, asked: int | None) -> int:
        """GPUs that a trial reserves.

        Args:
            asked: by the spec; as many as a node has when None.

        Raises:
            PlacementError: the nodes that are up have another number.
        """
        if asked is not None and self.nodes and asked != self.gpus:
            raise PlacementError(
                f"cluster.gpus must be what every node has, all held by its trial, but got {asked} where the nodes "
                f"have {self.gpus}; correct it or leave it out"
            )
        return self.gpus if asked is None else asked

    def obstacle(self) -> str:
        """Why no trial can start, as far as these numbers say."""
        if self.nodes == 0:
            return f"no node that offers {NODE_RESOURCE}: 1 is up"
        if self.seats == 0:
            return f"no node that offers {LOAD_RESOURCE} is up, and cluster.load_on is load_nodes"
        needs = (
            " and ".join(f"{name}: {amount:g}" for name, amount in bundle.items()) + " free on one node"
            for bundle in self._needs()
        )
        return f"{self.nodes} node{'s' * (self.nodes > 1)} up, and none has room: a trial needs {', '.join(needs)}"

    def _needs(self) -> list[dict[str, float]]:
        """What must be free, node by node."""
        bundles, _ = trial_bundles(self.load_on, self.gpus)
        if self.seats is not None:
            return bundles
        trial, *others = bundles
        return [{NODE_RESOURCE: 1, **trial, "CPU": trial["CPU"] + sum(bundle["CPU"] for bundle in others)}]


def trial_bundles(load_on: LoadOn = "engine_node", gpus: int = 0) -> tuple[list[dict[str, float]], str]:
    """One exclusive node with all its GPUs, and room for the trial, its load actor and its grader where they run.

    Args:
        load_on: where the load comes from.
        gpus: of each node.

    Returns:
        Bundles and strategy of a placement group; the first bundle is the trial's own.
    """
    trial, *others = (dict(bundle) for bundle in _BUNDLES[load_on])
    if gpus:
        trial[_GPU] = gpus
    return [trial, *others], "STRICT_PACK" if load_on == "engine_node" else "PACK"
