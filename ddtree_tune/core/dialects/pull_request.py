"""SGLang with pull request 29907, which does not take the topk that it is given."""

from __future__ import annotations

from dataclasses import replace

from ddtree_tune.core.dialects.sglang import SglangDialect
from ddtree_tune.core.engine import Algorithm, EffectiveConfig, EngineConfig


def effective_width(budget: int, topk: int, depth: int) -> int:
    """Candidates per position that the tree really has.

    ``min(max(budget // depth + 1, 2), topk)`` above ``depth`` nodes; up to there the build verifies
    the plain chain, cut to the budget. Source: sgl-project/sglang#29907, files at 93e9850.

    Args:
        budget: nodes of the tree.
        topk: SGLANG_DDTREE_MAX_TOPK.
        depth: block size minus one.
    """
    return 1 if budget <= depth else min(max(budget // depth + 1, 2), topk)


class PullRequestDialect(SglangDialect):
    """The width of a tree follows from its budget; the topk that is asked only caps it."""

    __slots__ = ()

    def canonical(self, config: EngineConfig) -> EngineConfig:
        """Requests that give the same width are the same server."""
        if config.algorithm is not Algorithm.TREE or config.budget is None or config.topk is None:
            return replace(config, budget=None, topk=None)
        return replace(config, topk=effective_width(config.budget, config.topk, self._depth))

    def read_back(self, server_info: dict[str, object], asked: EngineConfig) -> EffectiveConfig:
        """What the tree really is: by the build's rule, from the budget that it reports."""
        found = super().read_back(server_info, asked)
        if found.budget is None or found.topk is None:
            return found
        return replace(found, topk=effective_width(found.budget, found.topk, self._depth))

    @property
    def _depth(self) -> int:
        return (self.block_size or 1) - 1
