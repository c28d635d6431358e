"""What the target accepts of a batch's trees, and where its keys and values then belong.

Suffixes: B requests, N nodes with the root, T tokens of the vocabulary, W longest path with the
root. Nothing here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ddtree_tune.sglang_plugin.trees import Drafted


@dataclass(frozen=True, slots=True)
class Accepted:
    """The path of every request from the root down."""

    path_BW: torch.Tensor
    """int64 nodes, 0 behind the end of a path."""
    lengths_B: torch.Tensor
    """int32 nodes of the path, the root included: tokens that the step commits."""
    tokens_BW: torch.Tensor
    """int64: what the target says after each node of the path; the last of a path is the bonus token."""


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


def walk(drafted: Drafted, choices: torch.Tensor, longest: int) -> Accepted:
    """Follow the target's choices down from every root.

    A node is accepted if it and all its ancestors are what the target chose at their parents;
    siblings have different tokens, so that accepted nodes are one path.

    Args:
        drafted: the trees.
        choices: (B, N) int64, the target's own next token after each node.
        longest: W, nodes of the longest path that can be.
    """
    tokens = drafted.tokens_BN
    requests, nodes = tokens.shape
    wrong = tokens != choices.gather(1, drafted.parents_BN)
    wrong[:, 0] = False
    accepted = ~(drafted.visible_BNN & wrong[:, None, :]).any(2)
    path = torch.zeros(requests, longest + 1, dtype=torch.int64, device=tokens.device)
    number = torch.arange(nodes, device=tokens.device).expand(requests, -1)
    path.scatter_(1, torch.where(accepted, drafted.depths_BN, longest), number)  # column W takes the rest
    path = path[:, :longest].contiguous()
    lengths = accepted.sum(1, dtype=torch.int32)
    path.masked_fill_(torch.arange(longest, device=path.device) >= lengths[:, None], 0)
    return Accepted(path, lengths, choices.gather(1, path))


def stop_at_root(accepted: Accepted) -> Accepted:
    """The same step, had nothing of the drafts been accepted."""
    path = torch.zeros_like(accepted.path_BW)
    return Accepted(path, torch.ones_like(accepted.lengths_B), accepted.tokens_BW[:, :1].expand_as(path).contiguous())


def moves(slots: torch.Tensor, accepted: Accepted) -> tuple[torch.Tensor, torch.Tensor]:
    """How the path's keys and values come to stand in a row behind the prefix.

    Args:
        slots: (B, N) int64 cache slots of the nodes, in node order.
        accepted: the paths.

    Returns:
        (B * W,) int64 targets and sources. Behind the end of a path both are the same slot, which
        moves nothing. A source is never before its target, so a copy in ascending chunks is safe.
    """
    longest = accepted.path_BW.shape[1]
    front = slots[:, :longest]
    alive = torch.arange(longest, device=slots.device) < accepted.lengths_B[:, None]
    source = torch.where(alive, slots.gather(1, accepted.path_BW), front)
    return front.reshape(-1), source.reshape(-1)


def mask_cells(prefix: torch.Tensor, nodes: int) -> torch.Tensor:
    """Where SGLang's flat verify mask holds what nodes see of one another.

    The mask has, request after request, a row per node over prefix and nodes. The kernel takes the
    prefix as seen and reads only the cells of nodes.

    Args:
        prefix: (B,) int64 committed tokens.
        nodes: N.

    Returns:
        (B, N, N) int64 places.
    """
    row = prefix + nodes
    start = torch.cumsum(row, 0) * nodes - row * (nodes - 1) - nodes  # of the nodes' cells in row 0
    number = torch.arange(nodes, device=prefix.device)
    return start[:, None, None] + number[:, None] * row[:, None, None] + number
