"""The embedded engine, ``python -m ddtree_tune.builtin``."""

from __future__ import annotations

from dataclasses import dataclass

from ddtree_tune.core.dialects.base import canonical_tree, flag_args
from ddtree_tune.core.dialects.server_info import ServerInfo
from ddtree_tune.core.engine import Algorithm, EffectiveConfig, EngineConfig, LaunchPlan, Slot

_ALGORITHMS = {"DDTREE": Algorithm.TREE, "DFLASH": Algorithm.CHAIN, None: Algorithm.NONE}


@dataclass(frozen=True, slots=True)
class BuiltinDialect:
    """The embedded engine."""

    block_size: int = 16
    """Of the drafter: a tree is at most ``block_size - 1`` deep."""
    name: str = "builtin"

    def canonical(self, config: EngineConfig) -> EngineConfig:
        """See ``base.canonical_tree``."""
        return canonical_tree(config, self.block_size)

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
        argv += flag_args(config.flags)
        argv += ["--max-running-requests", str(slot.max_running_requests)]
        argv += ["--host", slot.host, "--port", str(slot.port), "--served-model-name", slot.served_model_name]
        return LaunchPlan((*argv, *slot.args), slot.env, slot.host, slot.port, slot.served_model_name)

    def read_back(self, server_info: dict[str, object], asked: EngineConfig) -> EffectiveConfig:  # noqa: ARG002 - it says all
        """Read SGLang's field names, as the embedded engine answers them."""
        info = ServerInfo.read(server_info, required=("speculative_algorithm", "speculative_ddtree_topk"))
        return info.effective(
            _ALGORITHMS.get(info.speculative_algorithm),
            budget=info.speculative_ddtree_budget,
            topk=info.speculative_ddtree_topk,
            window=info.speculative_draft_window_size,
            block_size=info.speculative_dflash_block_size,
        )
