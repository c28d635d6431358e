"""What is served: no speculation, the stock chain in a few forms, and trees of many sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm, EngineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    traced: bool = False
    """Whether the plugin writes down what is drafted, which makes it commit one token a step."""

    @property
    def is_tree(self) -> bool:
        """Whether it needs the plugin."""
        return self.config.algorithm is Algorithm.TREE

    @property
    def serves(self) -> bool:
        """Whether it does what a server does that nobody looks into."""
        return not self.timed and not self.traced

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

TRACED = Setting("64/8 traced", EngineConfig(Algorithm.TREE, 64, 8), traced=True)

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


def pick(known: Sequence[Setting], asked: str) -> tuple[Setting, ...]:
    """Some of the settings.

    Args:
        known: all of a kind.
        asked: how many of them, or their names with commas.

    Raises:
        ValueError: a name that is none of theirs.
    """
    if asked.isdecimal():
        return tuple(known[: int(asked)])
    names = {setting.name.removesuffix(" timed"): setting for setting in known}
    if unknown := [name for name in asked.split(",") if name not in names]:
        raise ValueError(f"settings must be some of {', '.join(names)}, but got {unknown[0]}")
    return tuple(names[name] for name in asked.split(","))


def deal(hands: int, some: Sequence[Setting]) -> list[list[Setting]]:
    """The settings of each GPU, in the order in which they start: the baselines on all, the rest in turn.

    Args:
        hands: how many GPUs, or groups of GPUs that a server takes together.
        some: the settings besides the baselines.
    """
    dealt = [[NONE, CHAIN] for _ in range(hands)]
    for at, setting in enumerate(some):
        dealt[at % hands].append(setting)
    return dealt
