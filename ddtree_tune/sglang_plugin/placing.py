"""Where the nodes of a tree stand: cache slots, positions, and what each sees in the target's pass.

Suffixes: B requests, N nodes with the root.
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
class Places:
    """Where a batch's nodes stand behind their prefixes."""

    slots_BN: torch.Tensor
    """int64 cache slots, which the scheduler reserved for the nodes."""
    positions_BN: torch.Tensor
    """int64: a node as deep as another one has the same."""


def place(
    trees: Trees,
    prefix: torch.Tensor,
    rows: torch.Tensor,
    req_to_token: torch.Tensor,
    *,
    depth: int,
    mask: torch.Tensor,
) -> Places:
    """Look up each node's slot and position, and write what it sees into SGLang's flat verify mask.

    The mask has, request after request, a row per node over prefix and nodes. The kernel takes the
    prefix as seen, so that only the cells of nodes are written: of each its ancestors and itself.

    Args:
        trees: the batch's.
        prefix: (B,) committed tokens.
        rows: (B,) of the request table.
        req_to_token: (requests, context) int32, SGLang's request table; a row contiguous.
        depth: of the deepest node that can be.
        mask: uint8, long enough for all rows.
    """
    requests, nodes = trees.tokens_BN.shape
    slots, positions = torch.empty(2, requests, nodes, dtype=torch.int64, device=mask.device).unbind()
    kernels.place[(nodes, requests)](
        trees.parents_BN,
        trees.depths_BN,
        prefix,
        rows,
        req_to_token,
        slots,
        positions,
        mask,
        req_to_token.stride(0),
        DEPTH=depth,
        NODES=nodes,
        CELLS=triton.next_power_of_2(nodes),
        num_warps=1,
    )
    return Places(slots, positions)
