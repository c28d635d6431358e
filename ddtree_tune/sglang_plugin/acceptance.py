"""What the target accepts of a batch's trees, and where its keys and values then belong.

Suffixes: B requests, N nodes with the root, T tokens of the vocabulary, W longest path with the
root. Nothing here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton

from ddtree_tune.sglang_plugin import kernels

if TYPE_CHECKING:
    from ddtree_tune.sglang_plugin.trees import Trees


@dataclass(frozen=True, slots=True)
class Accepted:
    """The path of every request from the root down, as the rest of a step wants it."""

    lengths_B: torch.Tensor
    """int32 nodes of the path, the root included: tokens that the step commits."""
    ends_B: torch.Tensor
    """Committed tokens behind the step, of the prefix's type."""
    bonus_B: torch.Tensor
    """int64: what the target says after the last node of the path, the next root."""
    tokens_BW: torch.Tensor
    """int64: what the target says after each node of the path. Behind its end the bonus token again."""
    targets_BW: torch.Tensor
    """int64 cache slots in a row behind the prefix."""
    sources_BW: torch.Tensor
    """int64 slots of the path's nodes, whose keys and values belong there. Behind its end the target itself, which
    moves nothing. A source is never before its target, so a copy in ascending chunks is safe."""
    rows_BW: torch.Tensor
    """int64: of the path's nodes among all B * N. Behind its end the root's."""
    positions_BW: torch.Tensor
    """int64 of the path's tokens, one after the other."""


def sampled_choices(probs: torch.Tensor) -> torch.Tensor:
    """One token for every node, drawn from the target's own distribution there.

    A walk asks each node at most once, and what a node draws does not depend on what was drafted
    below it: so the text has the target's distribution, whatever the trees are. The largest of
    p / Exp(1) is a draw from p.

    Args:
        probs: (B, N, T) float32; a row need not sum to 1.

    Returns:
        (B, N) int64.
    """
    race = torch.empty_like(probs).exponential_(1.0).clamp_(min=torch.finfo(probs.dtype).tiny)
    return torch.div(probs, race, out=race).argmax(-1)


def keep_likely(probs: torch.Tensor, min_ps: torch.Tensor) -> torch.Tensor:
    """Leave out tokens below a share of the best one's probability.

    Args:
        probs: (B, N, T) float32, changed in place.
        min_ps: (B,) float32 shares; 0 leaves nothing out.
    """
    least = probs.amax(-1, keepdim=True) * min_ps[:, None, None]
    return probs.masked_fill_(probs < least, 0.0)


def walk(
    trees: Trees, choices: torch.Tensor, slots: torch.Tensor, prefix: torch.Tensor, *, longest: int, deepest: int
) -> Accepted:
    """Follow the target's choices down from every root.

    Siblings have different tokens, so that at most one child of a node is what the target chose.

    Args:
        trees: the drafted ones.
        choices: (B, N) int64, the target's own next token after each node; contiguous.
        slots: (B, N) int64 cache slots of the nodes; contiguous.
        prefix: (B,) committed tokens.
        longest: W, nodes of the longest path that can be.
        deepest: depth at which to stop, had the target gone on; 0 accepts no draft.
    """
    requests, nodes = choices.shape
    device = choices.device
    grid = torch.empty(5, requests, longest, dtype=torch.int64, device=device)
    lengths = torch.empty(requests, dtype=torch.int32, device=device)
    ends, bonus = torch.empty_like(prefix), torch.empty(requests, dtype=torch.int64, device=device)
    tokens, targets, sources, rows, positions = grid.unbind()
    kernels.walk[(requests,)](
        trees.tokens_BN,
        trees.parents_BN,
        choices,
        slots,
        prefix,
        lengths,
        ends,
        bonus,
        tokens,
        targets,
        sources,
        rows,
        positions,
        DEEPEST=deepest,
        NODES=nodes,
        CELLS=triton.next_power_of_2(nodes),
        LONGEST=longest,
        num_warps=1,
    )
    return Accepted(lengths, ends, bonus, tokens, targets, sources, rows, positions)
