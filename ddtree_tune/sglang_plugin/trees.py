"""Best-first draft trees of a whole batch at once, on the device that holds the scores.

Suffixes: B requests, D draft depth (block size - 1), K candidates per position, N nodes, the root
at 0 among them, V candidate nodes of all levels.

No step depends on a value on the host, so a CUDA graph can hold all of it. Scores are counted on a
grid of 1/65536 nat in integers: sums are exact in any order, and a score and its place in the order
of ties fit into one key, so that a plain top-k is a stable one. The trees are those of
``core/tree.py`` on the same grid, node for node.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

GRID = 65_536
"""Steps of one nat."""
_WORST = GRID * 1_024
"""A candidate below e**-1024 costs no more than this, which keeps every key within 64 bits."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees of one batch, nodes in pop order: a parent comes before its children."""

    parents_BN: torch.Tensor
    """int64 node; the root is its own parent."""
    depths_BN: torch.Tensor
    """int64, the root's is 0."""
    ranks_BN: torch.Tensor
    """int64: which candidate of its position a node is; 0 for the root."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a verify step needs of a batch's trees."""

    tokens_BN: torch.Tensor
    """int64, the root's first."""
    parents_BN: torch.Tensor
    """int64 node; the root is its own parent."""
    depths_BN: torch.Tensor
    """int64, the root's is 0."""
    visible_BNN: torch.Tensor
    """bool; row i is node i, its ancestors and the root."""

    def first(self, requests: int) -> Drafted:
        """The trees of the first requests."""
        return Drafted(
            self.tokens_BN[:requests],
            self.parents_BN[:requests],
            self.depths_BN[:requests],
            self.visible_BNN[:requests],
        )


def costs_of(log_probs: torch.Tensor) -> torch.Tensor:
    """Negative log-probabilities on the grid.

    Args:
        log_probs: (B, D, K) float, descending in K.

    Returns:
        (B, D, K) int64, ascending in K and at least 0.
    """
    return (log_probs.double() * -GRID).round().clamp(0, _WORST).long()


def largest_tree(depth: int, topk: int) -> int:
    """Nodes, without the root, of the tree that holds every path.

    Args:
        depth: positions that a block drafts.
        topk: candidates of each.
    """
    return sum(topk**level for level in range(1, depth + 1))


def build_trees(costs: torch.Tensor, budget: int) -> Trees:
    """Take the ``budget`` most probable prefixes of each request's factorised draft.

    A node is never better than its parent, so the nodes of a tree at depth d are the best of that
    depth, and no more than ``budget - d + 1``: each level is the best extensions of the one above.

    Args:
        costs: (B, D, K) int64, as from ``costs_of``.
        budget: nodes of every tree, at least 1 and at most ``largest_tree``.
    """
    requests, depth, topk = costs.shape
    device = costs.device
    score = torch.zeros(requests, 1, dtype=torch.int64, device=device)
    scores, parents, ranks, depths = [], [], [], []
    above = 0  # id of the first candidate node of the level above; the root is 0
    for level in range(min(depth, budget)):
        extended = (score[:, :, None] + costs[:, level, None, :]).flatten(1)
        places = extended.shape[1]
        kept = min(budget - level, places)
        key = _smallest(extended, kept)
        score = torch.div(key, places, rounding_mode="floor")
        place = key - score * places
        parent = torch.div(place, topk, rounding_mode="floor")
        scores.append(score)
        parents.append(parent + above)
        ranks.append(place - parent * topk)
        depths.append(torch.full((kept,), level + 1, dtype=torch.int64, device=device))
        above = 1 + sum(one.shape[1] for one in scores[:-1])
    score, parent, rank = (torch.cat(levels, 1) for levels in (scores, parents, ranks))
    chosen = torch.remainder(_smallest(score, budget), score.shape[1])
    number = torch.zeros(requests, score.shape[1] + 1, dtype=torch.int64, device=device)
    number.scatter_(1, chosen + 1, torch.arange(1, budget + 1, device=device).expand(requests, -1))
    root = torch.zeros(requests, 1, dtype=torch.int64, device=device)
    return Trees(
        torch.cat((root, number.gather(1, parent.gather(1, chosen))), 1),
        torch.cat((root, torch.cat(depths)[chosen]), 1),
        torch.cat((root, rank.gather(1, chosen)), 1),
    )


def draft(costs: torch.Tensor, tokens: torch.Tensor, roots: torch.Tensor, budget: int) -> Drafted:
    """Build each request's tree and everything that a verify step needs of it.

    Args:
        costs: (B, D, K) int64, as from ``costs_of``.
        tokens: (B, D, K) int64 candidates.
        roots: (B,) int64 tokens of the roots.
        budget: nodes of every tree.
    """
    trees = build_trees(costs, budget)
    place = (trees.depths_BN[:, 1:] - 1) * tokens.shape[2] + trees.ranks_BN[:, 1:]
    return Drafted(
        torch.cat((roots[:, None], tokens.flatten(1).gather(1, place)), 1),
        trees.parents_BN,
        trees.depths_BN,
        visibility(trees.parents_BN, min(tokens.shape[1], budget)),
    )


def visibility(parents: torch.Tensor, depth: int) -> torch.Tensor:
    """Which nodes each node attends to: its ancestors, the root and itself.

    Args:
        parents: (B, N) int64.
        depth: of the deepest node that can be.

    Returns:
        (B, N, N) bool; row i is what node i sees.
    """
    nodes = parents.shape[1]
    seen = torch.eye(nodes, device=parents.device).repeat(parents.shape[0], 1, 1)
    seen.scatter_(2, parents[:, :, None], 1.0)
    for _ in range(max(depth - 1, 0).bit_length()):  # each product doubles how far up a node sees
        seen = torch.bmm(seen, seen).clamp_(max=1.0)
    return seen > 0


def links(parents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """First child and next sibling of every node, as SGLang's grammars walk a tree.

    Returns:
        (B, N) int64 each; -1 where there is none.
    """
    nodes = parents.shape[1]
    number = torch.arange(nodes, device=parents.device)
    real = number > 0  # the root is nobody's child
    child = (parents[:, None, :] == number[:, None]) & real
    later = (parents[:, :, None] == parents[:, None, :]) & (number > number[:, None]) & real[:, None]
    first = torch.where(child, number, nodes).amin(2)
    following = torch.where(later, number, nodes).amin(2)
    return torch.where(first < nodes, first, -1), torch.where(following < nodes, following, -1)


def _smallest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """(B, count) keys of the best, ascending: ``score * places + place``; equals in order of place."""
    places = scores.shape[1]
    key = torch.add(torch.arange(places, device=scores.device), scores, alpha=places)
    return torch.topk(key, count, dim=1, largest=False, sorted=True).values
