"""The target and the DFlash drafter as forward passes over slots.

The drafter reads hidden states of the target at committed positions (its context) and fills a
block: the anchor token, then mask tokens. Its cache holds the context's keys and values; a draft
writes its block behind them, where the next context overwrites it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.builtin.cache import KvCache
from ddtree_tune.builtin.layers import Span, Stack, normalise, rotary_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.builtin.weights import DraftWeights, TargetWeights


@dataclass(frozen=True, slots=True)
class Limits:
    """How large the buffers must be."""

    slots: int
    """Sequences at once."""
    length: int
    """Most tokens of one sequence, prompt included."""
    chunk: int
    """Most prompt tokens of one prefill pass."""
    width: int
    """Most tokens that one sequence brings to a decoding pass."""

    @property
    def capacity(self) -> int:
        """Cache rows of a slot: a pass may write its whole width behind the last token."""
        return self.length + self.width

    @property
    def tokens(self) -> int:
        """Most tokens of one pass."""
        return max(self.chunk, self.slots * self.width)


class Target:
    """The target model with its cache."""

    def __init__(self, weights: TargetWeights, limits: Limits) -> None:
        config = weights.config
        self.weights = weights
        self.cache = KvCache(
            config.num_hidden_layers, limits.slots, config.num_key_value_heads, limits.capacity, config.head_dim
        )
        rotary = rotary_table(config, limits.capacity)
        self._stack = Stack(weights.layers, config, self.cache, rotary, limits.tokens, max(limits.chunk, limits.width))
        self._head = Head(weights.head, weights.final_norm, config.rms_norm_eps, limits.slots * limits.width)

    def forward(
        self, tokens: NDArray[np.int64], positions: NDArray[np.int64], spans: Sequence[Span], taps: Sequence[int] = ()
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Run the tokens of all spans.

        Returns:
            Hidden states (N, hidden) float32 before the final norm, and the outputs of the tapped
            layers side by side, (N, taps hidden) float32, or None without taps.
        """
        x = self.weights.embedding[tokens]
        return x, self._stack.forward(x, positions, spans, taps)

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of the next token, (N, vocab) float32; overwritten by the next call."""
        return self._head.logits(hidden)


class Drafter:
    """The DFlash drafter with its cache."""

    def __init__(self, weights: DraftWeights, target: TargetWeights, block_size: int, limits: Limits) -> None:
        config = weights.config
        self.block_size = block_size
        self.taps = config.dflash_config.target_layer_ids
        self._weights = weights
        self._embedding = target.embedding
        self._mask_id = config.dflash_config.mask_token_id
        capacity = limits.length + block_size
        self._cache = KvCache(
            config.num_hidden_layers, limits.slots, config.num_key_value_heads, capacity, config.head_dim
        )
        self._rotary = rotary_table(config, capacity)
        tokens = limits.slots * block_size
        self._stack = Stack(weights.layers, config, self._cache, self._rotary, tokens, block_size)
        self._head = Head(target.head, weights.final_norm, config.rms_norm_eps, tokens)
        self._epsilon = np.float32(config.rms_norm_eps * config.hidden_size)
        self._head_epsilon = np.float32(config.rms_norm_eps * config.head_dim)
        self._offsets = np.arange(block_size)

    def extend(self, features: NDArray[np.float32], positions: NDArray[np.int64], spans: Sequence[Span]) -> None:
        """Append committed positions to the context.

        Args:
            features: (N, taps hidden) float32, the target's tapped outputs there.
            positions: (N,) int64.
            spans: whose positions they are.
        """
        config = self._weights.config
        context: NDArray[np.float32] = features @ self._weights.fc
        squares = np.empty(len(context), np.float32)
        normalise(context, self._epsilon, squares, context)
        shape = (len(context), config.num_hidden_layers, 2 * config.num_key_value_heads, config.head_dim)
        key_values: NDArray[np.float32] = (context @ self._weights.context_kv).reshape(shape)
        keys = key_values[:, :, : config.num_key_value_heads]
        normalise(keys, self._head_epsilon, np.empty(keys.shape[:-1], np.float32), keys)
        np.multiply(keys, self._weights.context_k_norm, out=keys)
        pairs = key_values.view(np.complex64)[:, :, : config.num_key_value_heads]
        np.multiply(pairs, self._rotary[positions][:, None], out=pairs)
        by_layer = key_values.transpose(1, 2, 0, 3)
        for span in spans:
            own = slice(span.first, span.first + span.count)
            self._cache.write(span.slot, span.start, by_layer[:, :, own])

    def draft(
        self, slots: Sequence[int], anchors: Sequence[int], lengths: Sequence[int], window: int | None
    ) -> NDArray[np.float32]:
        """Fill one block per sequence.

        Args:
            slots: (B,) where the sequences live.
            anchors: (B,) their last chosen tokens, which the target has not read.
            lengths: (B,) their committed positions.
            window: most context positions to attend to, the last ones; None is all.

        Returns:
            (B, block - 1, vocab) float32 scores of the tokens behind the anchors; overwritten by
            the next call.
        """
        size = self.block_size
        tokens = np.full((len(slots), size), self._mask_id)
        tokens[:, 0] = anchors
        x = self._embedding[tokens.reshape(-1)]
        positions = (np.array(lengths)[:, None] + self._offsets).reshape(-1)
        spans = [
            Span(slot, index * size, size, length, 0 if window is None else max(0, length - window))
            for index, (slot, length) in enumerate(zip(slots, lengths, strict=True))
        ]
        self._stack.forward(x, positions, spans)
        hidden = x.reshape(len(slots), size, -1)[:, 1:].reshape(-1, x.shape[1])
        return self._head.logits(hidden).reshape(len(slots), size - 1, -1)


class Head:
    """A final norm and the projection to the vocabulary."""

    def __init__(self, matrix: NDArray[np.float32], norm: NDArray[np.float32], epsilon: float, max_tokens: int) -> None:
        hidden, vocabulary = matrix.shape
        self._matrix = norm[:, None] * matrix
        self._epsilon = np.float32(epsilon * hidden)
        self._squares = np.empty(max_tokens, np.float32)
        self._normed = np.empty((max_tokens, hidden), np.float32)
        self._logits = np.empty((max_tokens, vocabulary), np.float32)

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, hidden) float32 to (N, vocab) float32, overwritten by the next call."""
        count = len(hidden)
        normed = self._normed[:count]
        normalise(hidden, self._epsilon, self._squares[:count], normed)
        return np.matmul(normed, self._matrix, out=self._logits[:count])
