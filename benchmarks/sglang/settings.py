"""What is served: no speculation, the stock chain in a few forms, and trees of many sizes."""

from __future__ import annotations

from dataclasses import dataclass

from ddtree_tune.core.engine import Algorithm, EngineConfig

EAGER = ("disable-cuda-graph", True)
NO_OVERLAP = ("disable-overlap-schedule", True)
TOPKS = (1, 2, 4, 8)
BUDGETS = (4, 8, 15, 16, 32, 64)
"""15 is the whole block, which is all that a tree of topk 1 holds."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One server."""

    name: str
    config: EngineConfig
    timed: bool = False
    """Whether the plugin writes down how long the parts of each step take, which costs a little."""

    @property
    def is_tree(self) -> bool:
        """Whether it needs the plugin."""
        return self.config.algorithm is Algorithm.TREE

    @property
    def slug(self) -> str:
        """Name for files."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)


def _tree(budget: int, topk: int, *, timed: bool = False) -> Setting:
    name = f"{budget}/{topk} timed" if timed else f"{budget}/{topk}"
    return Setting(name, EngineConfig(Algorithm.TREE, budget, topk), timed=timed)


NONE = Setting("none", EngineConfig(Algorithm.NONE))
CHAIN = Setting("chain", EngineConfig(Algorithm.CHAIN))
CHAIN_STEPS = "15/1"
"""The tree that the chain of a whole block is."""
STOCK = (
    NONE,
    CHAIN,
    Setting("chain eager", EngineConfig(Algorithm.CHAIN, flags=(EAGER,))),
    Setting("chain no overlap", EngineConfig(Algorithm.CHAIN, flags=(NO_OVERLAP,))),
    Setting("chain window 64", EngineConfig(Algorithm.CHAIN, window=64)),
)
"""What stock SGLang does without a plugin."""
TREES = tuple(
    _tree(*one)
    for one in (
        *((16, 4), (8, 4), (32, 4), (64, 4), (4, 4), (15, 1), (16, 2), (16, 8), (32, 8), (8, 2), (64, 8), (32, 2)),
        *((64, 2), (4, 2), (8, 8), (4, 1), (8, 1)),
    )
)
"""The most telling first. Left out is what gives the same tree: topk above the budget, topk 1 beyond the block."""
TIMED = tuple(_tree(budget, topk, timed=True) for budget, topk in ((16, 4), (64, 4), (8, 4), (15, 1)))


REFUSED = tuple(
    Setting(f"refused: {name}", EngineConfig(Algorithm.TREE, budget, topk, flags=flags))
    for name, budget, topk, flags in (
        ("budget 0", 0, 4, ()),
        ("topk 0", 16, 0, ()),
        ("topk beyond the vocabulary", 16, 5000, ()),
        ("pages of 16", 16, 4, (("page-size", 16),)),
        ("attention of fa3", 16, 4, (("attention-backend", "fa3"),)),
        ("a block of 32", 16, 4, (("speculative-dflash-block-size", 32),)),
        ("64 nodes of topk 1", 64, 1, ()),
    )
)
"""What must not start, with one sentence."""


def deal(gpus: int, trees: int, timed: int) -> list[list[Setting]]:
    """The settings of each GPU, in the order in which they start: the baselines on all, the rest in turn.

    Args:
        gpus: how many.
        trees: how many of the trees.
        timed: how many of the timed ones.
    """
    hands = [[NONE, CHAIN] for _ in range(gpus)]
    for at, setting in enumerate((*TREES[:trees], *TIMED[:timed])):
        hands[at % gpus].append(setting)
    return hands
