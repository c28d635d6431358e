"""The section of a spec that says which server every trial launches."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from ddtree_tune.core.engine import Scalar
from ddtree_tune.core.fields import Positive, Seconds, Strict

Words: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
Options: TypeAlias = dict[str, Scalar]

FAKED_ACCEPTANCE = "SGLANG_SIMULATE_ACC_LEN"
"""A variable that makes SGLang report an acceptance length that nobody drafted."""

_BUILTIN_DEADLINE_S = 60.0
_UNKNOWN_DEADLINE_S = 1800.0
"""For a model of unknown size: half an hour is a cold start of the largest (Kimi K2.6, 554 GiB)."""
_GRAPHS_S = 300.0
"""Processes, kernels that are compiled and graphs that are captured, whatever the model's size."""
_LOADED_PER_S = 0.4e9
"""Bytes per second of a slow shared disk; a warm local one was reported six times as fast."""


class Knob(Strict):
    """How one build spells one knob: as a flag, as a variable, or not at all."""

    flag: Annotated[str, Field(pattern=r"^--[a-z0-9-]+$")] | None = None
    """Command-line flag that takes the value."""
    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable that takes the value."""
    fixed: Positive | Literal["none"] | None = None
    """The value that this build always has, whatever is asked."""
    plus: int = 0
    """Added to our value to give the build's, as where a budget is spelled as verify width."""
    read: str | None = None
    """Dotted path of the build's value in ``/server_info``; when absent the knob cannot be checked."""

    @model_validator(mode="after")
    def _spelled_once(self) -> Self:
        given = [name for name in ("flag", "env", "fixed") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a knob must have exactly one of flag, env and fixed, but got {given or 'none'}")
        return self


class Speculating(Strict):
    """How one build is told to speculate in one way."""

    algorithm: str
    """Value of ``--speculative-algorithm``, and what ``/server_info`` answers for it."""
    args: Words = ()
    """Further arguments."""


class Spelling(Strict):
    """How one build of SGLang spells everything that a sweep varies: a private fork needs no more."""

    tree: Speculating | None = Speculating(algorithm="DDTREE")
    """How it verifies trees; null if it cannot."""
    chain: Speculating = Speculating(algorithm="DFLASH")
    """How it verifies the plain chain."""
    budget: Knob | None = None
    """Nodes of the tree, the root not counted."""
    topk: Knob | None = None
    """Candidates per position."""
    window: Knob
    """Committed positions that the drafter attends to; no window is not spelled at all."""
    tree_args: Words = ("--attention-backend", "triton", "--page-size", "1")
    """What its trees need, given to the chain too so that the two are compared under equal limits."""
    graph_flag: Annotated[str, Field(pattern=r"^--[a-z0-9-]+$")] = "--cuda-graph-max-bs-decode"
    """Flag of the largest batch that is captured in a CUDA graph; older builds have ``--cuda-graph-max-bs``."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.tree is not None:
            for name in ("budget", "topk"):
                if getattr(self, name) is None:
                    raise ValueError(f"{name} must be given for a build that has trees, but it is missing")
        return self


class EngineSpec(Strict):
    """Which server every trial launches."""

    kind: Literal["builtin", "sglang"] = "builtin"
    """``builtin`` is the embedded engine; it needs no GPU. ``sglang`` is any version or fork of SGLang."""
    dialect: Literal["ddtree_tune", "sglang-dflash", "sglang-pr29907", "custom"] | None = None
    """How this SGLang spells the knobs: our plugin, stock DFLASH (window only), pull request 29907, or
    ``custom`` with a table of your own."""
    custom: Spelling | None = None
    """The table of a private build."""
    command: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] = ("python", "-m", "sglang.launch_server")
    """What launches SGLang; ``python`` is the interpreter that runs us, name another one's path if need be."""
    model: str | None = None
    """Folder of the target, for SGLang also its name on a hub; the shipped one when absent."""
    draft_model: str | None = None
    """Folder or name of the drafter; the shipped one when absent."""
    block_size: Positive | None = None
    """Positions that the drafter fills at once, the anchor included; read from the drafter's folder when absent."""
    model_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Size of the weights, where ``model`` is no folder: the start-up deadline follows from it."""
    template: str | None = None
    """Folder with the chat template; the model's own folder when absent."""
    chat_template_kwargs: Options = Field(default_factory=dict)
    """Sent with every request, as in ``{thinking: false}``: part of what is measured."""
    args: Words = ()
    """Arguments added to every launch."""
    tree_args: Words | None = None
    """Arguments of trees, and of the chain that is compared with them; the dialect's own when absent."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables added to every launch."""
    start_deadline_s: Seconds | None = None
    """Launch to ready, at most; when absent 60 s for ``builtin`` and scaled to the model's bytes for ``sglang``."""
    stall_s: Seconds = 30.0
    """No token for as long ends a trial."""
    stop_grace_s: Seconds = 5.0
    """SIGTERM to SIGKILL."""
    release_s: Seconds = 60.0
    """Within so long after a stop the ports and the GPU memory must be free, or the node is quarantined."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if FAKED_ACCEPTANCE in self.env:
            raise ValueError(f"env must not set {FAKED_ACCEPTANCE}, which fakes acceptance; take it out")
        if self.kind == "builtin":
            only = ("dialect", "custom", "block_size", "model_gib", "template", "tree_args")
            given = [name for name in only if getattr(self, name) is not None]
            given += ["command"] if "command" in self.model_fields_set else []
            given += ["chat_template_kwargs"] if self.chat_template_kwargs else []
            if given:
                raise ValueError(f"{', '.join(given)} must be given with kind: sglang alone, but got kind: builtin")
            return self
        for name in ("model", "draft_model"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} must be given with kind: sglang, but it is missing")
        if self.dialect is None and self.custom is None:
            raise ValueError("dialect or custom must be given with kind: sglang, but both are missing")
        if (self.dialect == "custom") != (self.custom is not None) and self.dialect is not None:
            raise ValueError(
                "custom must hold the table of the build with dialect: custom, and must be absent with any other, "
                f"but got dialect: {self.dialect}"
            )
        return self

    @property
    def spelling(self) -> str:
        """Name of the dialect."""
        if self.kind == "builtin":
            return "builtin"
        return self.dialect or "custom"

    def deadline_s(self, model_bytes: int | None) -> float:
        """Launch to ready, at most.

        Args:
            model_bytes: size of the weights where it is known.
        """
        if self.start_deadline_s is not None:
            return self.start_deadline_s
        if self.kind == "builtin":
            return _BUILTIN_DEADLINE_S
        if self.model_gib is not None:
            model_bytes = int(self.model_gib * 2**30)
        return _UNKNOWN_DEADLINE_S if model_bytes is None else _GRAPHS_S + model_bytes / _LOADED_PER_S
