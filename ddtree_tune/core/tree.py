"""The reference draft tree: best-first under a node budget, visibility, and the walk.

Suffixes: D draft depth (block size - 1), K candidates per position, N nodes without the root.

The drafter gives D independent distributions. A node is a path of ranks (r_1 .. r_d) and its score
the sum of the log-probabilities at those ranks. Nodes are taken in order of score until the budget
is spent; a node's next sibling and its first child enter the heap when it is taken. So the tree at
budget B is the first B pops of the tree at any larger budget, and the tree for topk K keeps those
pops whose ranks are all below K.

Source: DDTree, arXiv 2604.12989, section 3; github.com/liranringel/ddtree ``ddtree.py``. Of equal
scores the shallower node is taken first, then the one with the earlier parent, then the better rank:
an order that is read off a node alone, so that a GPU can follow it (``sglang_plugin/kernels.py``).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Nodes in pop order; node 0 is the root, which is already committed."""

    parents_N: tuple[int, ...]
    """Parent of node i + 1; a parent comes before its children."""
    depths_N: tuple[int, ...]
    """Depth of node i + 1, from 1."""
    ranks_N: tuple[int, ...]
    """Which candidate of its position node i + 1 is."""

    @property
    def width(self) -> int:
        """Tokens that one verify step sees: the nodes and the root."""
        return len(self.parents_N) + 1


def build_tree(log_probs: Sequence[Sequence[float]], budget: int) -> DraftTree:
    """Take the ``budget`` most probable prefixes of a factorised draft.

    Args:
        log_probs: (D, K), per position the candidates' log-probabilities, in descending order.
        budget: most nodes to take, at least 1.

    Returns:
        The tree; fewer nodes than the budget only when D and K allow no more.
    """
    depth, topk = len(log_probs), len(log_probs[0])
    parents: list[int] = []
    depths: list[int] = []
    ranks: list[int] = []
    # (-score, depth index, parent, rank, parent's score): the first four are the order
    heap = [(-log_probs[0][0], 0, 0, 0, 0.0)]
    while heap and len(parents) < budget:
        negative, at, parent, rank, parent_score = heapq.heappop(heap)
        parents.append(parent)
        depths.append(at + 1)
        ranks.append(rank)
        if rank + 1 < topk:
            sibling = parent_score + log_probs[at][rank + 1]
            heapq.heappush(heap, (-sibling, at, parent, rank + 1, parent_score))
        if at + 1 < depth:
            heapq.heappush(heap, (negative - log_probs[at + 1][0], at + 1, len(parents), 0, -negative))
    return DraftTree(tuple(parents), tuple(depths), tuple(ranks))


def chain(depth: int) -> DraftTree:
    """The tree of plain DFlash: the best candidate of each of ``depth`` positions."""
    return DraftTree(tuple(range(depth)), tuple(range(1, depth + 1)), (0,) * depth)


def visibility(tree: DraftTree) -> NDArray[np.bool_]:
    """Which nodes each node attends to: its ancestors, the root and itself.

    Returns:
        (N + 1, N + 1) bool; row i is what node i sees.
    """
    width = tree.width
    seen = np.zeros((width, width), dtype=np.bool_)
    seen[0, 0] = True
    for node, parent in enumerate(tree.parents_N, start=1):
        seen[node] = seen[parent]
        seen[node, node] = True
    return seen


def walk(tree: DraftTree, tokens: Sequence[int], choices: Sequence[int]) -> tuple[int, ...]:
    """The path that the target accepts.

    Args:
        tree: the drafted tree.
        tokens: (N,) token of node i + 1.
        choices: (N + 1,) the target's own next token after each node.

    Returns:
        Accepted nodes from the root down, node 0 first. The step commits their tokens without the
        root's, plus ``choices[path[-1]]``: as many tokens as the path has nodes.
    """
    child = {(parent, token): node for node, (parent, token) in enumerate(zip(tree.parents_N, tokens, strict=True), 1)}
    path = [0]
    while (nxt := child.get((path[-1], choices[path[-1]]))) is not None:
        path.append(nxt)
    return tuple(path)
