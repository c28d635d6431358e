"""One engine configuration: what was asked, what the server resolved, how it is launched.

Asked, effective and seen are three different values and all three are kept. This module holds
the first two; what was seen is measured (see metrics).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None


class Algorithm(StrEnum):
    """How the engine speculates."""

    NONE = "none"
    """Plain autoregressive decoding."""
    CHAIN = "chain"
    """DFlash: the drafter's block is verified as one chain."""
    CHAIN_UNRESTRICTED = "chain_unrestricted"
    """DFlash without the limits that the build's trees put on kernels and scheduler: as one would serve it."""
    TREE = "tree"
    """DDTree: the drafter's block is verified as a best-first tree."""
    AS_IS = "as_is"
    """Whatever a server that somebody else launched does."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What one trial asks of the engine."""

    algorithm: Algorithm
    budget: int | None = None
    """Non-root nodes verified per step; verify width is budget + 1. Trees only."""
    topk: int | None = None
    """Candidates that one draft position may offer to the tree. Trees only."""
    window: int | None = None
    """Committed positions that the drafter attends to; None is all of them."""
    flags: tuple[tuple[str, Scalar], ...] = ()
    """Further engine flags as sorted (name, value) pairs."""

    @property
    def config_id(self) -> str:
        """Twelve hex digits that name this configuration on any machine."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """A short name for people: budget/topk/window, or the baseline's name."""
        window = "none" if self.window is None else str(self.window)
        if self.algorithm is Algorithm.TREE:
            name = f"{self.budget}/{self.topk}/{window}"
        elif self.algorithm in {Algorithm.CHAIN, Algorithm.CHAIN_UNRESTRICTED}:
            chain = "chain" if self.algorithm is Algorithm.CHAIN else "unrestricted chain"
            name = chain if self.window is None else f"{chain}/{window}"
        else:
            name = "no speculation" if self.algorithm is Algorithm.NONE else "as it runs"
        return " ".join([name, *(f"{key}={value}" for key, value in self.flags)])


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """What the running server says it resolved; None where it does not say."""

    algorithm: Algorithm | None
    budget: int | None
    topk: int | None
    window: int | None
    block_size: int | None
    """Positions that the drafter fills at once, the anchor included."""
    max_running_requests: int | None
    served_model_name: str | None
    version: str | None
    graph_batch: int | None = None
    """Largest batch that is decoded in a CUDA graph."""
    inferred: tuple[str, ...] = ()
    """Knobs that the server does not report: what is here follows from the launch by the build's rule."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One knob whose effective value is not the one asked."""

    knob: str
    asked: Scalar
    effective: Scalar

    def __str__(self) -> str:
        return f"{self.knob} asked {self.asked}, server resolved {self.effective}"


@dataclass(frozen=True, slots=True)
class Slot:
    """What a node gives to one launch: everything a plan needs beside the configuration."""

    host: str
    port: int
    served_model_name: str
    """The trial's nonce: nobody else's server answers to this name."""
    model: str | None
    """Folder of the target; None for the engine's own."""
    draft_model: str | None
    max_running_requests: int
    """At least the largest concurrency of the load matrix."""
    further_ports: tuple[int, ...] = ()
    """Free ports for what a server opens beside its front."""
    args: tuple[str, ...] = ()
    """Arguments the spec adds to every launch."""
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The exact command of one server."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    """Variables set on top of the owner's environment."""
    host: str
    port: int
    served_model_name: str
    further_ports: tuple[int, ...] = ()
    """What else it may listen on; watched, as the port is, until all are free after a stop."""

    @property
    def base_url(self) -> str:
        """Where the server listens."""
        return f"http://{self.host}:{self.port}"


class Route(StrEnum):
    """Through which of a server's doors the load goes."""

    CHAT = "chat"
    """The OpenAI chat stream; the server applies the model's chat template."""
    GENERATE = "generate"
    """SGLang's native ``/generate``, which counts verify steps in every version; we apply the template."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server as load and coding evaluation see it, whoever launched it."""

    base_url: str
    """Scheme, host and port, without ``/v1``."""
    served_model_name: str
    route: Route = Route.CHAT
    template: str | None = None
    """Folder with the model's chat template; None where the server applies it."""
    extensions: bool = True
    """Whether to send the fields that SGLang and vLLM add to OpenAI's; some servers refuse them."""
    template_options: tuple[tuple[str, Scalar], ...] = ()
    """What the chat template is told beside the messages, as ``thinking``."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer token, where the server wants one."""
    host_name: str | None = None
    """Name of the machine that it runs on, where we launched it."""

    @property
    def door(self) -> str:
        """The address that load is sent to."""
        path = "/generate" if self.route is Route.GENERATE else "/v1/chat/completions"
        return f"{self.base_url}{path}"


@dataclass(frozen=True, slots=True)
class Starting:
    """A launched server that is not ready yet."""

    phase: str
    """What its log says that it does."""
    seconds: float
    """Since the launch."""
    deadline_s: float
    """Launch to ready, at most."""


@dataclass(frozen=True, slots=True)
class EngineHandle:
    """A server that runs and that we own."""

    endpoint: Endpoint
    plan: LaunchPlan
    pid: int
    node_id: str
    ready_s: float
    """Launch to the first healthy answer, in seconds."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """How the engine process is doing, asked at any time."""

    alive: bool
    exit_code: int | None = None
    failure: str | None = None
    """A FailureClass where the log or the exit names one."""
    reason: str | None = None
    log_tail: str = field(default="", repr=False)
    graphs: GraphUse | None = None
    """How the decode steps ran that the log tells of."""


@dataclass(frozen=True, slots=True)
class GraphUse:
    """Lines of a server's decode log by how their steps ran: eager steps are no measure of a build."""

    graphed: int = 0
    """In a CUDA graph."""
    eager: int = 0


def differences(asked: EngineConfig, effective: EffectiveConfig) -> tuple[Difference, ...]:
    """The knobs on which the server does not do what was asked.

    Args:
        asked: the canonical form of what the trial asked for (see ``dialects``).
        effective: what the server reports.

    Returns:
        One entry per differing knob, in field order; empty if all agree. A knob that does not
        apply to the algorithm is not compared; one that the server does not report is a difference.
    """
    knobs = {
        Algorithm.NONE: ("algorithm",),
        Algorithm.CHAIN: ("algorithm", "window"),
        Algorithm.CHAIN_UNRESTRICTED: ("algorithm", "window"),
        Algorithm.TREE: ("algorithm", "budget", "topk", "window"),
        Algorithm.AS_IS: (),
    }[asked.algorithm]
    pairs = ((name.name, getattr(asked, name.name)) for name in fields(asked) if name.name in knobs)
    return tuple(
        Difference(name, value, getattr(effective, name)) for name, value in pairs if value != getattr(effective, name)
    )
