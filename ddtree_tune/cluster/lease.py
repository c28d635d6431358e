"""A lease: held by the process that runs trials, so that a server knows when that process is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray

from ddtree_tune.cluster.placement import here

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class Lease:
    """Whoever can no longer reach it has no trial to serve."""

    def ping(self) -> None:
        """Answer while the trial lives."""


_LeaseActor = ray.remote(Lease)


def lease_actor(name: str) -> ActorHandle[Any]:
    """Take a lease on this node; it goes with the process that took it."""
    actor: ActorHandle[Any] = _LeaseActor.options(num_cpus=0, name=f"lease-{name}", scheduling_strategy=here()).remote()
    return actor
