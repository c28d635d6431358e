"""The winner as a manifest for Kubernetes: Deployments of what was measured, and the Service before them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import yaml

from ddtree_tune.core.launch import (
    DEFAULTS,
    about,
    beside_best,
    command_words,
    comment,
    schedule_comment,
    winning_plan,
)
from ddtree_tune.core.tables import WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.engine import LaunchPlan
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec

_ANYWHERE = "0.0.0.0"  # noqa: S104 - within a pod, which has an address of its own
_SHARED = "/dev/shm"  # noqa: S108 - where the ranks of a server share memory; a container gets 64 MB of it
_PROBED_S = 10
"""Between two looks of Kubernetes at a server."""
_IMAGES = {"builtin": "registry.example.com/ddtree-tune:", "sglang": "lmsysorg/sglang:v"}


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base names it
        return True


def winner_manifest(conclusion: Conclusion, records: Sequence[TrialRecord], spec: SweepSpec) -> str | None:
    """Deployments and a Service; None if the sweep recommends nothing.

    What is better than the best setting for some number of requests in flight has no replica at first.
    """
    best = winning_plan(conclusion, records)
    if best is None:
        return None
    name = spec.name.lower().replace("_", "-")[:40].strip("-")  # a label of DNS
    others = beside_best(conclusion, records)
    pod = _pod(records, spec)
    documents = [
        _deployment(name, name, _container(best, pod), pod, replicas=1),
        *(
            _deployment(name, f"{name}-from-{step.least}", _container(plan, pod), pod, replicas=0)
            for step, plan in others.items()
        ),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {
                "selector": {"app": name},
                "ports": [{"name": "http", "port": int(DEFAULTS["PORT"]), "targetPort": "http"}],
            },
        },
    ]
    lines = about(conclusion, spec)
    if others:
        lines += comment(
            "For a number of requests in flight what follows is best there; give that Deployment the replicas, and the "
            "first one none:"
        )
        lines += schedule_comment(conclusion)
    lines += comment("Edit the image: it must hold the build that was measured. The rest is what was measured.")
    return "\n".join((*lines, yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=WIDTH)))


def _pod(records: Sequence[TrialRecord], spec: SweepSpec) -> dict[str, Any]:
    """What the servers share: the image, the node's GPUs and folders, how long a start may take."""
    versions = [one.effective.version for one in records if one.effective is not None and one.effective.version]
    gpus = max((len(one.fingerprint.gpus) for one in records if one.fingerprint is not None), default=0)
    named = (spec.engine.model, spec.engine.draft_model)
    folders = dict.fromkeys(path for path in named if path is not None and path.startswith("/"))
    volumes: list[dict[str, Any]] = [
        {"name": f"models-{n}", "hostPath": {"path": path, "type": "Directory"}} for n, path in enumerate(folders)
    ]
    mounts: list[dict[str, Any]] = [
        {"name": f"models-{n}", "mountPath": path, "readOnly": True} for n, path in enumerate(folders)
    ]
    if gpus:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "shm", "mountPath": _SHARED})
    health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": _PROBED_S}
    looks = math.ceil(spec.engine.deadline_s(None) / _PROBED_S)
    shared = {
        "ports": [{"name": "http", "containerPort": int(DEFAULTS["PORT"])}],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
        "startupProbe": {**health, "failureThreshold": looks},
        "readinessProbe": health,
        "volumeMounts": mounts,
    }
    image = f"{_IMAGES[spec.engine.kind]}{versions[-1] if versions else '0'}"
    return {"image": image, "shared": {key: value for key, value in shared.items() if value}, "volumes": volumes}


def _container(plan: LaunchPlan, pod: dict[str, Any]) -> dict[str, Any]:
    """A launch as a container; Kubernetes resolves ``$(HOST)`` and the like from its variables."""
    words = command_words(plan, {name: f"$({name})" for name in DEFAULTS}, _literal)
    options = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    variables = {**DEFAULTS, "HOST": _ANYWHERE} | {name: _literal(value) for name, value in plan.env}
    return {
        "name": "server",
        "image": pod["image"],
        "command": words[:options],
        "args": words[options:],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        **pod["shared"],
    }


def _deployment(
    app: str, name: str, container: dict[str, Any], pod: dict[str, Any], *, replicas: int
) -> dict[str, Any]:
    labels = {"app": app, "setting": name}
    volumes = {"volumes": pod["volumes"]} if pod["volumes"] else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **volumes}},
        },
    }


def _literal(word: str) -> str:
    """A word in which Kubernetes resolves nothing."""
    return word.replace("$(", "$$(")
