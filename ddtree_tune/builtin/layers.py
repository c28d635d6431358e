"""Transformer layers over a flat batch of tokens, shared by the target and the drafter.

Tokens of several sequences stand in one matrix, so that every projection is one product. Only
attention goes sequence by sequence: each has its own cache, and its query heads that share a key
head are folded into rows. Small models spend their time in calls, not in arithmetic: buffers are
reused, results go into place, and everything that does not change from layer to layer is made
once per pass.

Suffixes: N tokens of the batch, G query heads per key head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.builtin.cache import KvCache
    from ddtree_tune.builtin.weights import LayerWeights, ModelConfig

HIDDEN_SCORE = np.float32(-1e9)
"""Added to the score of a token that may not be seen; its exponential is exactly 0."""


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens of one sequence within a batch."""

    slot: int
    first: int
    """Row of its first token in the batch."""
    count: int
    start: int
    """Cache row of its first token: how many tokens are committed."""
    visible_from: int = 0
    """First cache row that it attends to."""
    mask: NDArray[np.float32] | None = None
    """(count, 1, count) float32, added to the scores among its own tokens; None lets all see all."""


def causal_mask(count: int) -> NDArray[np.float32]:
    """The mask of consecutive tokens; (count, 1, count) float32."""
    return np.triu(np.full((count, count), HIDDEN_SCORE), 1)[:, None]


def rotary_table(config: ModelConfig, positions: int) -> NDArray[np.complex64]:
    """The rotation of every position, (positions, 1, head_dim / 2) complex64.

    Angles are float32 products, as in the implementations that the weights were trained with.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = np.float32(1) / np.float32(config.rope_theta) ** exponents
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    return (np.cos(angles) + 1j * np.sin(angles)).astype(np.complex64)[:, None]


def normalise(
    x: NDArray[np.float32], epsilon: np.float32, squares: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Divide each row by the root of its sum of squares; the weights hold the rest of RMSNorm.

    Args:
        x: (..., size) float32.
        epsilon: of the norm, times ``size``.
        squares: (...) float32, overwritten.
        out: as ``x``, may be ``x``.
    """
    np.vecdot(x, x, out=squares)
    np.add(squares, epsilon, out=squares)
    np.sqrt(squares, out=squares)
    np.divide(x, squares[..., None], out=out)


class Stack:
    """The layers of one model with the cache they read and write."""

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        config: ModelConfig,
        cache: KvCache,
        rotary: NDArray[np.complex64],
        max_tokens: int,
        max_count: int,
    ) -> None:
        """Allocate the buffers.

        Args:
            layers: weights, first layer first.
            config: of the model.
            cache: with as many layers.
            rotary: see `rotary_table`; covers the cache's capacity.
            max_tokens: most tokens of one batch.
            max_count: most tokens of one span.
        """
        self._layers = tuple(layers)
        self._config = config
        self._cache = cache
        self._rotary = rotary
        heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self._heads, self._kv_heads, self._head_dim = heads, kv_heads, head_dim
        self._hidden_epsilon = np.float32(config.rms_norm_eps * config.hidden_size)
        self._head_epsilon = np.float32(config.rms_norm_eps * head_dim)
        self._normed = np.empty((max_tokens, config.hidden_size), np.float32)
        self._squares = np.empty(max_tokens, np.float32)
        self._head_squares = np.empty((max_tokens, heads + kv_heads), np.float32)
        self._qkv = np.empty((max_tokens, (heads + 2 * kv_heads) * head_dim), np.float32)
        self._queries = np.empty(max_tokens * heads * head_dim, np.float32)
        self._attended = np.empty(max_tokens * heads * head_dim, np.float32)
        self._joined = np.empty((max_tokens, heads * head_dim), np.float32)
        self._sums = np.empty(max_tokens * heads, np.float32)
        self._gate_up = np.empty((max_tokens, 2 * config.intermediate_size), np.float32)
        self._gate = np.empty((max_tokens, config.intermediate_size), np.float32)
        self._added = np.empty((max_tokens, config.hidden_size), np.float32)
        self._scores = np.empty(heads * max_count * cache.capacity, np.float32)

    def forward(
        self,
        x: NDArray[np.float32],
        positions: NDArray[np.int64],
        spans: Sequence[Span],
        taps: Sequence[int] = (),
    ) -> NDArray[np.float32] | None:
        """Run all layers on ``x`` in place and write the tokens' keys and values.

        Args:
            x: (N, hidden) float32, embeddings in, hidden states out.
            positions: (N,) int64.
            spans: whose tokens they are; together they cover the rows.
            taps: layers whose outputs are kept.

        Returns:
            (N, taps hidden) float32, or None without taps.
        """
        batch = _Batch(self, len(x), spans)
        rotary = self._rotary[positions]
        features = np.empty((len(x), len(taps), x.shape[1]), np.float32) if taps else None
        for index, layer in enumerate(self._layers):
            self._attend(x, layer, self._cache.rows[index], rotary, batch)
            self._transform(x, layer, batch)
            if features is not None and index in taps:
                features[:, taps.index(index)] = x
        return None if features is None else features.reshape(len(x), -1)

    def _attend(
        self,
        x: NDArray[np.float32],
        layer: LayerWeights,
        cache: Sequence[NDArray[np.float32]],
        rotary: NDArray[np.complex64],
        batch: _Batch,
    ) -> None:
        """Self-attention with its residual."""
        normalise(x, self._hidden_epsilon, batch.squares, batch.normed)
        np.matmul(batch.normed, layer.qkv, out=batch.qkv)
        normalise(batch.qk, self._head_epsilon, batch.head_squares, batch.qk)
        np.multiply(batch.qk, layer.qk_norm, out=batch.qk)
        np.multiply(batch.q_pairs, rotary[:, :, None], out=batch.q_folded)
        np.multiply(batch.k_pairs, rotary, out=batch.k_pairs)
        for span, views in batch.spans:
            rows = cache[span.slot]
            rows[:, views.new] = batch.kv[:, views.own]
            keys, values = rows[: self._kv_heads, views.seen], rows[self._kv_heads :, views.seen]
            np.matmul(views.queries, keys.swapaxes(1, 2), out=views.scores)
            if span.mask is not None:
                np.add(views.own_scores, span.mask, out=views.own_scores)
            np.subtract(views.scores, views.scores.max(-1, keepdims=True), out=views.scores)
            np.exp(views.scores, out=views.scores)
            np.add.reduce(views.scores, -1, out=views.sums)
            np.matmul(views.scores, values, out=views.attended)
        np.divide(batch.attended, batch.sums, out=batch.joined_folded)
        np.matmul(batch.joined, layer.out, out=batch.added)
        np.add(x, batch.added, out=x)

    def _transform(self, x: NDArray[np.float32], layer: LayerWeights, batch: _Batch) -> None:
        """SwiGLU with its residual.

        The weights give the negated gate g: silu(-g) up = -g up / (1 + exp(g)), and the sign is in
        the last matrix.
        """
        normalise(x, self._hidden_epsilon, batch.squares, batch.normed)
        np.matmul(batch.normed, layer.gate_up, out=batch.gate_up)
        np.exp(batch.negative_gate, out=batch.gate)
        np.add(batch.gate, np.float32(1), out=batch.gate)
        np.divide(batch.negative_gate, batch.gate, out=batch.gate)
        np.multiply(batch.gate, batch.up, out=batch.gate)
        np.matmul(batch.gate, layer.down, out=batch.added)
        np.add(x, batch.added, out=x)


@dataclass(frozen=True, slots=True)
class _SpanViews:
    """One span's parts of the buffers."""

    own: slice
    new: slice
    seen: slice
    queries: NDArray[np.float32]
    scores: NDArray[np.float32]
    own_scores: NDArray[np.float32]
    sums: NDArray[np.float32]
    attended: NDArray[np.float32]


class _Batch:
    """The buffers of a stack, cut to one batch."""

    def __init__(self, stack: Stack, count: int, spans: Sequence[Span]) -> None:
        heads, kv_heads, head_dim = stack._heads, stack._kv_heads, stack._head_dim
        group = heads // kv_heads
        self.normed = stack._normed[:count]
        self.squares = stack._squares[:count]
        self.qkv = stack._qkv[:count]
        by_head = self.qkv.reshape(count, heads + 2 * kv_heads, head_dim)
        self.qk = by_head[:, : heads + kv_heads]
        self.head_squares = stack._head_squares[:count]
        pairs = by_head.view(np.complex64)
        self.q_pairs = pairs[:, :heads].reshape(count, kv_heads, group, head_dim // 2)
        self.k_pairs = pairs[:, heads : heads + kv_heads]
        self.kv = by_head[:, heads:].swapaxes(0, 1)
        queries = stack._queries[: count * heads * head_dim].reshape(kv_heads, count, group, head_dim)
        self.q_folded = queries.view(np.complex64).swapaxes(0, 1)
        self.attended = stack._attended[: count * heads * head_dim].reshape(kv_heads, count, group, head_dim)
        self.sums = stack._sums[: count * heads].reshape(kv_heads, count, group, 1)
        self.joined = stack._joined[:count]
        self.joined_folded = self.joined.reshape(count, kv_heads, group, head_dim).swapaxes(0, 1)
        self.gate_up = stack._gate_up[:count]
        ffn = self.gate_up.shape[1] // 2
        self.negative_gate, self.up = self.gate_up[:, :ffn], self.gate_up[:, ffn:]
        self.gate = stack._gate[:count]
        self.added = stack._added[:count]
        self.spans: list[tuple[Span, _SpanViews]] = []
        for span in spans:
            own = slice(span.first, span.first + span.count)
            end = span.start + span.count
            rows, seen = span.count * group, end - span.visible_from
            scores = stack._scores[: kv_heads * rows * seen].reshape(kv_heads, rows, seen)
            by_query = scores.reshape(kv_heads, span.count, group, seen)
            views = _SpanViews(
                own,
                slice(span.start, end),
                slice(span.visible_from, end),
                queries[:, own].reshape(kv_heads, rows, head_dim),
                scores,
                by_query[..., seen - span.count :],
                self.sums[:, own].reshape(kv_heads, rows),
                self.attended[:, own].reshape(kv_heads, rows, head_dim),
            )
            self.spans.append((span, views))
