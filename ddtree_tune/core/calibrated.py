"""Acceptance of any tree from that of a single measured setting, where no trace tells it.

A drafter that knows how sure it is gives its first candidate the chance that the target takes it, and
each further one the same chance of what is left. That chance is the only unknown: the acceptance
length of one setting, usually the chain's, tells it, and with it what every tree should accept. How
much that is wrong is left to the measurements.
"""

from __future__ import annotations

import functools
import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.step_time import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord

_UNSURE = 0.1
"""Deviation of the logarithm of an acceptance that is told so; two drafters on real text were off by up to as much."""
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Acceptance of any setting of one drafter."""

    depth: int
    """Drafted tokens of a block."""
    chances: Mapping[int, float]
    """That the first candidate is taken, by context."""

    @classmethod
    def of(cls, records: Iterable[TrialRecord]) -> Calibrated | None:
        """Take the chances from the first trial that measured an acceptance in a context, baselines first.

        Returns:
            None where none did, or where no server says how long its blocks are.
        """
        chances: dict[int, float] = {}
        depth = None
        for record in records:
            block = record.effective.block_size if record.effective else None
            if not record.measured or block is None or record.config.algorithm is Algorithm.NONE:
                continue
            depth = block - 1
            budget, topk = _shape(record.config, depth)
            for cell in (one.metrics for one in record.cells):
                if cell.scored and cell.accept_len and cell.context not in chances:
                    chances[cell.context] = _chance(cell.accept_len, budget, topk, depth)
        return cls(depth, chances) if depth and chances else None

    def width(self, config: EngineConfig) -> int | None:
        """Tokens of one sequence in a verify pass; None without drafts."""
        if config.algorithm is Algorithm.NONE:
            return None
        budget, topk = _shape(config, self.depth)
        return (min(budget, self.depth) if topk == 1 else budget) + 1

    def __call__(self, config: EngineConfig, context: int) -> Estimate | None:
        """Acceptance length at a context; None where none was measured."""
        if context not in self.chances or config.algorithm is Algorithm.NONE:
            return None
        budget, topk = _shape(config, self.depth)
        return Estimate(math.log(accept_len(self.chances[context], budget, topk, self.depth)), _UNSURE)


def accept_len(chance: float, budget: int, topk: int, depth: int) -> float:
    """Tokens that a verify step commits with the best tree of a budget.

    Candidate r of a position is taken with chance * (1 - chance)^(r - 1), independently of the other
    positions; a node counts as the product of its path, and the tree is the budget's largest ones.

    Args:
        chance: of the first candidate.
        budget: nodes.
        topk: candidates of a position.
        depth: positions.
    """
    lengths = _lengths(chance, topk, depth, max(64, 2 ** (budget - 1).bit_length()))
    return lengths[min(budget, len(lengths) - 1)]


@functools.lru_cache(maxsize=256)
def _lengths(chance: float, topk: int, depth: int, most: int) -> tuple[float, ...]:
    """Of trees of 0, 1, 2, … nodes, as far as there are nodes."""
    found = [1.0]
    front = [(-chance, 1, 1)]
    while front and len(found) <= most:
        value, rank, at = heapq.heappop(front)
        found.append(found[-1] - value)
        if rank < topk:
            heapq.heappush(front, (value * (1 - chance), rank + 1, at))
        if at < depth:
            heapq.heappush(front, (value * chance, 1, at + 1))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _chance(length: float, budget: int, topk: int, depth: int) -> float:
    """The chance with which a setting accepts so much, by halving."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if accept_len(middle, budget, topk, depth) < length else (low, middle)
    return (low + high) / 2


def _shape(config: EngineConfig, depth: int) -> tuple[int, int]:
    """Budget and topk; a chain's are its block and 1."""
    return config.budget or depth, config.topk or 1
