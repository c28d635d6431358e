"""How one engine build spells the knobs: configuration to command line and back.

A dialect turns a configuration into a launch plan, reads the effective configuration from the
server's own information, and says which requested points are the same server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree_tune.core.engine import Algorithm, EffectiveConfig, EngineConfig, LaunchPlan, Slot
from ddtree_tune.core.errors import EngineError, FailureClass


class Dialect(Protocol):
    """How one build spells the knobs."""

    @property
    def name(self) -> str:
        """How the spec names it."""
        ...

    def canonical(self, config: EngineConfig) -> EngineConfig:
        """The configuration that this one really is; equal servers give equal results."""
        ...

    def plan(self, config: EngineConfig, slot: Slot) -> LaunchPlan:
        """The command that launches it."""
        ...

    def read_back(self, server_info: dict[str, object]) -> EffectiveConfig:
        """What the server resolved; raise EngineError if its answer has another form."""
        ...


class _ServerInfo(BaseModel):
    """The fields of ``/server_info`` that are read; servers add others freely."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    speculative_algorithm: Literal["DDTREE", "DFLASH"] | None
    speculative_ddtree_budget: int | None
    speculative_ddtree_topk: int | None
    speculative_draft_window_size: int | None
    speculative_dflash_block_size: int | None
    max_running_requests: Annotated[int, Field(ge=1)]
    served_model_name: str
    version: str


@dataclass(frozen=True, slots=True)
class BuiltinDialect:
    """The embedded engine, ``python -m ddtree_tune.builtin``."""

    block_size: int = 16
    """Of the drafter: a tree is at most ``block_size - 1`` deep."""
    name: str = "builtin"

    def canonical(self, config: EngineConfig) -> EngineConfig:
        """Cap topk by the budget, and a tree of topk 1 by its depth.

        A candidate of rank r is taken only after r better siblings, so ranks at or beyond the
        budget never enter a tree. With one candidate per position the tree is a chain, which is
        no longer than the block.
        """
        if config.algorithm is not Algorithm.TREE or config.budget is None or config.topk is None:
            return replace(config, budget=None, topk=None)
        budget = min(config.budget, self.block_size - 1) if config.topk == 1 else config.budget
        return replace(config, budget=budget, topk=min(config.topk, budget))

    def plan(self, config: EngineConfig, slot: Slot) -> LaunchPlan:
        """The command line of the embedded engine."""
        argv = ["python", "-m", "ddtree_tune.builtin", "--algorithm", config.algorithm.value]
        if slot.model:
            argv += ["--model", slot.model]
        if slot.draft_model:
            argv += ["--draft-model", slot.draft_model]
        if config.algorithm is Algorithm.TREE:
            argv += ["--budget", str(config.budget), "--topk", str(config.topk)]
        if config.algorithm is not Algorithm.NONE:
            argv += ["--window", "none" if config.window is None else str(config.window)]
        for name, value in config.flags:
            argv += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        argv += ["--max-running-requests", str(slot.max_running_requests)]
        argv += ["--host", slot.host, "--port", str(slot.port), "--served-model-name", slot.served_model_name]
        return LaunchPlan((*argv, *slot.args), slot.env, slot.host, slot.port, slot.served_model_name)

    def read_back(self, server_info: dict[str, object]) -> EffectiveConfig:
        """Read SGLang's field names, as the embedded engine answers them."""
        try:
            info = _ServerInfo.model_validate(server_info)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise EngineError(
                f"/server_info must have a valid {field}, but got {_short(first['input'])}", FailureClass.IDENTITY
            ) from None
        algorithm = {"DDTREE": Algorithm.TREE, "DFLASH": Algorithm.CHAIN, None: Algorithm.NONE}[
            info.speculative_algorithm
        ]
        return EffectiveConfig(
            algorithm,
            info.speculative_ddtree_budget,
            info.speculative_ddtree_topk,
            info.speculative_draft_window_size,
            info.speculative_dflash_block_size,
            info.max_running_requests,
            info.served_model_name,
            info.version,
        )


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
