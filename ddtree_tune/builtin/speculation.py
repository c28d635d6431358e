"""What an engine speculates, and how one draft becomes the nodes that the target verifies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.builtin.buffers import HIDDEN_SCORE
from ddtree_tune.builtin.layers import causal_mask
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.tree import DraftTree, build_tree, chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Speculation:
    """The knobs as the engine resolved them."""

    algorithm: Algorithm
    budget: int = 0
    """Nodes beside the root."""
    topk: int = 1
    window: int | None = None
    block_size: int = 1

    @classmethod
    def resolve(cls, algorithm: Algorithm, budget: int, topk: int, window: int | None, block_size: int) -> Speculation:
        """Cap topk by the budget, and a chain by its block."""
        if algorithm is Algorithm.NONE:
            return cls(algorithm)
        if algorithm is Algorithm.CHAIN:
            return cls(algorithm, block_size - 1, 1, window, block_size)
        if topk == 1:
            budget = min(budget, block_size - 1)
        return cls(algorithm, budget, min(topk, budget), window, block_size)

    @property
    def depth(self) -> int:
        """Deepest node that a draft can have."""
        return min(self.budget, self.block_size - 1)

    @property
    def width(self) -> int:
        """Most tokens of one sequence in a verify pass."""
        return self.budget + 1


@dataclass(frozen=True, slots=True)
class Draft:
    """A tree with its tokens, ready to be verified."""

    tree: DraftTree
    tokens: list[int]
    """(N,) token of node i + 1."""
    depths: NDArray[np.int64]
    """(N + 1,) int64, the root's 0 included."""
    mask: NDArray[np.float32]
    """(N + 1, 1, N + 1) float32, see `buffers.Span`."""


class Drafting:
    """Turns the drafter's scores into drafts."""

    def __init__(self, speculation: Speculation) -> None:
        self._speculation = speculation
        self._chain = chain(speculation.budget) if speculation.topk == 1 else None
        self._chain_depths = np.arange(speculation.width)
        self._chain_mask = causal_mask(speculation.width)

    def drafts(self, logits: NDArray[np.float32]) -> list[Draft]:
        """One draft per sequence.

        Args:
            logits: (B, depth, vocab) float32; may be overwritten.
        """
        if self._chain is not None:
            best = logits.argmax(-1).tolist()
            return [Draft(self._chain, tokens, self._chain_depths, self._chain_mask) for tokens in best]
        values, tokens = candidates(logits, self._speculation.topk)
        return [self._draft(*pair) for pair in zip(values.tolist(), tokens.tolist(), strict=True)]

    def _draft(self, log_probs: list[list[float]], tokens: list[list[int]]) -> Draft:
        tree = build_tree(log_probs, self._speculation.budget)
        chosen = [tokens[depth - 1][rank] for depth, rank in zip(tree.depths_N, tree.ranks_N, strict=True)]
        return Draft(tree, chosen, np.array((0, *tree.depths_N)), tree_mask(tree.parents_N))


def tree_mask(parents: Sequence[int]) -> NDArray[np.float32]:
    """The additive form of `core.tree.visibility`, from one integer per node instead of one row.

    Args:
        parents: (N,) parent of node i + 1.

    Returns:
        (N + 1, 1, N + 1) float32, see `buffers.Span`.
    """
    seen = [1]  # bit j of entry i: node i sees node j
    for node, parent in enumerate(parents, 1):
        seen.append(seen[parent] | 1 << node)
    width = len(seen)
    size = -(-width // 8)
    packed = np.frombuffer(b"".join([bits.to_bytes(size, "little") for bits in seen]), np.uint8)
    hidden = np.unpackbits(~packed.reshape(width, size), axis=1, count=width, bitorder="little")
    return (hidden * HIDDEN_SCORE)[:, None]


def candidates(logits: NDArray[np.float32], topk: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The best tokens of every position.

    Args:
        logits: (B, depth, vocab) float32; overwritten.
        topk: how many.

    Returns:
        Log-probabilities (B, depth, topk) float32 in descending order, and their tokens, int64.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    rows = np.arange(len(flat))
    values = np.empty((topk, len(flat)), np.float32)
    tokens = np.empty((topk, len(flat)), np.int64)
    top = flat.max(1)
    weights = flat - top[:, None]
    np.exp(weights, out=weights)
    total = np.log(weights.sum(1)) + top
    # A few passes for the best are cheaper than any partial sort of so short a row.
    for rank in range(topk):
        best = flat.argmax(1, out=tokens[rank])
        values[rank] = flat[rows, best]
        flat[rows, best] = -np.inf
    values -= total
    shape = (*logits.shape[:-1], topk)
    return values.T.reshape(shape), tokens.T.reshape(shape)
