"""Best-first draft trees of a whole batch at once, on the device that holds the scores.

Suffixes: B requests, D draft depth (block size - 1), K candidates per position, N nodes, the root
at 0 among them.

One program builds one request's tree, with the frontier in its registers: no step depends on a
value on the host, so a CUDA graph can hold all of it. Scores are counted on a grid of 1/65536 nat
in integers: sums are exact in any order, and a candidate's score, its place in the order of ties
and all that is to be known of it fit into one integer. The trees are those of ``core/tree.py`` on
the same grid, node for node.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from ddtree_tune.sglang_plugin import kernels

GRID = 65_536
"""Steps of one nat."""
_WORST = GRID * 1_024
"""A candidate below e**-1024 costs no more than this, which bounds what a path can cost."""
_KEY_BITS = 63


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees of one batch, nodes in pop order: a parent comes before its children."""

    tokens_BN: torch.Tensor
    """int64, the root's first."""
    parents_BN: torch.Tensor
    """int64 node; the root is its own parent."""
    depths_BN: torch.Tensor
    """int64, the root's is 0."""

    @staticmethod
    def empty(requests: int, nodes: int, device: torch.device | str) -> Trees:
        """Room for trees."""
        return Trees(*torch.zeros(3, requests, nodes, dtype=torch.int64, device=device).unbind())

    def first(self, requests: int) -> Trees:
        """The trees of the first requests."""
        return Trees(self.tokens_BN[:requests], self.parents_BN[:requests], self.depths_BN[:requests])


def costs_of(log_probs: torch.Tensor) -> torch.Tensor:
    """Negative log-probabilities on the grid, rounded as the trees are built.

    Args:
        log_probs: (B, D, K) float32, descending in K.

    Returns:
        (B, D, K) int64, ascending in K and at least 0.
    """
    return (log_probs * -GRID + 0.5).floor().clamp(0, _WORST).long()


def build_trees(log_probs: torch.Tensor, tokens: torch.Tensor, roots: torch.Tensor, out: Trees) -> None:
    """Take the most probable prefixes of each request's factorised draft.

    Args:
        log_probs: (B, D, K) float32, descending in K; contiguous.
        tokens: (B, D, K) int64 candidates; contiguous.
        roots: (B,) int64 tokens of the roots, at any stride.
        out: where the trees go; its nodes without the root are the budget, at most as many as D
            and K allow.

    Raises:
        ValueError: trees so large that a candidate does not fit into 63 bits.
    """
    requests, depth, topk = log_probs.shape
    budget = out.tokens_BN.shape[1] - 1
    node_bits, rank_bits, depth_bits = budget.bit_length(), (min(topk, budget) - 1).bit_length(), depth.bit_length()
    if (_WORST * depth).bit_length() + node_bits + rank_bits + depth_bits > _KEY_BITS:
        raise ValueError(f"a tree must fit its keys, but got a budget of {budget}, topk {topk} and depth {depth}")
    slots = triton.next_power_of_2(budget + 1)
    kernels.build[(requests,)](
        log_probs,
        tokens,
        roots,
        out.tokens_BN,
        out.parents_BN,
        out.depths_BN,
        roots.stride(0),
        DEPTH=depth,
        TOPK=topk,
        RANKS=min(topk, budget),
        BUDGET=budget,
        SLOTS=slots,
        NODE_BITS=node_bits,
        RANK_BITS=rank_bits,
        DEPTH_BITS=depth_bits,
        STEPS=GRID,
        WORST=_WORST,
        num_warps=max(1, min(8, slots // 256)),
    )


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
