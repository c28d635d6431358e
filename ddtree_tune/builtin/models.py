"""The target and the DFlash drafter as forward passes over slots.

The drafter reads hidden states of the target at committed positions (its context) and fills a
block: the anchor token, then mask tokens. Its cache holds the context's keys and values; a draft
writes its block behind them, where the next context overwrites it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.builtin.buffers import Projection, Span, padded
from ddtree_tune.builtin.cache import KvCache
from ddtree_tune.builtin.layers import Stack, normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.builtin.speculation import Speculation
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
        self._stack = Stack(
            weights.embedding,
            weights.layers,
            config,
            self.cache,
            max_tokens=limits.tokens,
            max_count=max(limits.chunk, limits.width),
        )
        self._head = Head(weights.head, weights.final_norm, config.rms_norm_eps, limits.slots * limits.width)

    def forward(
        self, tokens: NDArray[np.int64], positions: NDArray[np.int64], spans: Sequence[Span], taps: Sequence[int] = ()
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Run the tokens of all spans.

        Returns:
            Hidden states (N, hidden) float32 before the final norm, and the outputs of the tapped
            layers side by side, (N, taps hidden) float32, or None without taps.
        """
        return self._stack.forward(tokens, positions, spans, taps)

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of the next token, (N, vocab) float32; overwritten by the next call."""
        return self._head.logits(hidden)


class Drafter:
    """The DFlash drafter with its cache."""

    def __init__(self, weights: DraftWeights, target: TargetWeights, speculation: Speculation, limits: Limits) -> None:
        """Allocate for the largest draft.

        Args:
            weights: of the drafter.
            target: whose embedding and head the drafter uses.
            speculation: with the largest block and depth of any draft.
            limits: of the target.
        """
        block_size = speculation.block_size
        config = weights.config
        self.taps = config.dflash_config.target_layer_ids
        self._config = config
        self._mask_id = config.dflash_config.mask_token_id
        self._cache = KvCache(
            config.num_hidden_layers,
            limits.slots,
            config.num_key_value_heads,
            limits.length + block_size,
            config.head_dim,
        )
        tokens = limits.slots * block_size
        self._stack = Stack(
            target.embedding, weights.layers, config, self._cache, max_tokens=tokens, max_count=block_size
        )
        self._head = Head(target.head, weights.final_norm, config.rms_norm_eps, limits.slots * speculation.depth)
        self._offsets = np.arange(block_size)
        self._features = np.zeros((padded(limits.tokens), len(weights.fc)), np.float32)
        self._fc = Projection(weights.fc, limits.tokens)
        self._context_kv = Projection(weights.context_kv, limits.tokens)
        self._context_k_norm = weights.context_k_norm
        self._squares = np.zeros(limits.tokens, np.float32)
        self._head_squares = np.zeros((limits.tokens, *weights.context_k_norm.shape[:2]), np.float32)
        self._epsilon = np.float32(config.rms_norm_eps * config.hidden_size)
        self._head_epsilon = np.float32(config.rms_norm_eps * config.head_dim)

    def extend(
        self,
        features: NDArray[np.float32],
        positions: NDArray[np.int64],
        spans: Sequence[Span],
        kept: Sequence[int] | None = None,
    ) -> None:
        """Append committed positions to the context.

        Args:
            features: (N, taps hidden) float32, the target's tapped outputs.
            positions: (N,) int64.
            spans: whose positions they are, as rows of what is kept.
            kept: rows to append; None is all.
        """
        config = self._config
        if kept is None:
            kept = range(len(features))
        count = len(kept)
        inputs = self._features[: padded(count)]
        np.take(features, kept, 0, out=inputs[:count], mode="clip")
        context = self._fc(inputs, count)
        normalise(context, self._epsilon, self._squares[:count], context)
        key_values = self._context_kv(self._fc.filled(count), count).reshape(
            count, config.num_hidden_layers, 2 * config.num_key_value_heads, config.head_dim
        )
        keys = key_values[:, :, : config.num_key_value_heads]
        normalise(keys, self._head_epsilon, self._head_squares[:count], keys)
        np.multiply(keys, self._context_k_norm, out=keys)
        pairs = key_values.view(np.complex64)[:, :, : config.num_key_value_heads]
        np.multiply(pairs, self._stack.rotary[positions[kept]][:, None], out=pairs)
        by_layer = key_values.transpose(1, 2, 0, 3)
        for span in spans:
            self._cache.write(span.slot, span.start, by_layer[:, :, span.first : span.first + span.count])

    def draft(
        self, slots: Sequence[int], anchors: Sequence[int], lengths: Sequence[int], speculation: Speculation
    ) -> NDArray[np.float32]:
        """Fill one block per sequence.

        Args:
            slots: (B,) where the sequences live.
            anchors: (B,) their last chosen tokens, which the target has not read.
            lengths: (B,) their committed positions.
            speculation: says the block, the depth that is scored, and the window of context.

        Returns:
            (B, depth, vocab) float32 scores of the tokens behind the anchors; overwritten by the
            next call.
        """
        batch, size, depth, window = len(slots), speculation.block_size, speculation.depth, speculation.window
        tokens = np.full((batch, size), self._mask_id)
        tokens[:, 0] = anchors
        positions = (np.array(lengths)[:, None] + self._offsets[:size]).reshape(-1)
        spans = [
            Span(slot, index * size, size, length, 0 if window is None else max(0, length - window))
            for index, (slot, length) in enumerate(zip(slots, lengths, strict=True))
        ]
        hidden, _ = self._stack.forward(tokens.reshape(-1), positions, spans)
        scored = hidden.reshape(batch, size, -1)[:, 1 : 1 + depth].reshape(batch * depth, -1)
        return self._head.logits(scored).reshape(batch, depth, -1)


class Head:
    """A final norm and the projection to the vocabulary.

    The norm is not folded into the matrix: both models use one, and it stays in the cache between them.
    """

    def __init__(self, matrix: NDArray[np.float32], norm: NDArray[np.float32], epsilon: float, max_rows: int) -> None:
        self._project = Projection(matrix, max_rows)
        self._norm = norm
        self._epsilon = np.float32(epsilon * len(norm))
        self._squares = np.zeros(max_rows, np.float32)
        self._normed = np.zeros((padded(max_rows), len(norm)), np.float32)

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, hidden) float32 to (N, vocab) float32, overwritten by the next call."""
        count = len(hidden)
        normed = self._normed[:count]
        normalise(hidden, self._epsilon, self._squares[:count], normed)
        np.multiply(normed, self._norm, out=normed)
        return self._project(self._normed[: padded(count)], count)
