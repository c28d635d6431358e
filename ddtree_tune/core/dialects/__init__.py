"""How engine builds spell the knobs: configuration to command line and back.

A dialect turns a configuration into a launch plan, reads the effective configuration from the
server's own information, and says which requested points are the same server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.dialects.base import Dialect, overridden
from ddtree_tune.core.dialects.builtin import BuiltinDialect
from ddtree_tune.core.dialects.pull_request import PullRequestDialect
from ddtree_tune.core.dialects.sglang import SglangDialect
from ddtree_tune.core.dialects.spellings import PLUGIN, PR_29907, STOCK_DFLASH
from ddtree_tune.core.errors import SpecError

if TYPE_CHECKING:
    from ddtree_tune.core.engine_spec import EngineSpec

__all__ = ["BuiltinDialect", "Dialect", "PullRequestDialect", "SglangDialect", "overridden", "select"]

_PULL_REQUEST = "sglang-pr29907"


def select(spec: EngineSpec, block_size: int | None) -> Dialect:
    """The dialect that a spec names.

    Args:
        spec: which server is launched.
        block_size: of the drafter, the anchor included; None where it is not known.

    Raises:
        SpecError: the dialect needs a block size that is not known.
    """
    name = spec.spelling
    if name == "builtin":
        return BuiltinDialect() if block_size is None else BuiltinDialect(block_size=block_size)
    if name == _PULL_REQUEST:
        if block_size is None:
            raise SpecError(
                f"engine.block_size must be given with dialect {_PULL_REQUEST}, whose trees are as wide as budget and "
                "block make them, but it is missing; it is block_size in the drafter's config.json"
            )
        return PullRequestDialect(name, spec, PR_29907, block_size)
    if spec.custom is not None:
        return SglangDialect(name, spec, spec.custom, block_size)
    return SglangDialect(name, spec, PLUGIN if name == "ddtree_tune" else STOCK_DFLASH, block_size)
