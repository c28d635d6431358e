"""Keys and values of every slot, layer by layer.

A slot holds one sequence. Rows below its committed length belong to it; a forward pass writes the
rows behind them, and only those of the accepted path are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class KvCache:
    """One preallocated block; a page that no sequence reaches is never touched."""

    def __init__(self, layers: int, slots: int, kv_heads: int, capacity: int, head_dim: int) -> None:
        self.capacity = capacity
        self.kv_heads = kv_heads
        self._rows = np.zeros((layers, slots, 2 * kv_heads, capacity, head_dim), np.float32)
        self.rows = [[self._rows[layer, slot] for slot in range(slots)] for layer in range(layers)]
        """[layer][slot] → (2 kv_heads, capacity, head_dim) float32, keys before values."""

    def write(self, slot: int, start: int, rows: NDArray[np.float32]) -> None:
        """Put rows of every layer, (layers, 2 kv_heads, count, head_dim) float32, at ``start``."""
        self._rows[:, slot, :, start : start + rows.shape[2]] = rows

    def keep(self, slot: int, start: int, path: Sequence[int]) -> None:
        """Move the rows of an accepted path together.

        Args:
            slot: whose rows.
            start: row of the first token of the pass.
            path: offsets of the kept rows, ascending from 0.
        """
        if path[-1] == len(path) - 1:
            return
        rows = self._rows[:, slot]
        rows[:, :, start : start + len(path)] = rows[:, :, [start + offset for offset in path]]
