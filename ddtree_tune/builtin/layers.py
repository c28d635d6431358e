"""Transformer layers over a flat batch of tokens, shared by the target and the drafter.

Tokens of several sequences stand in one matrix, so that every projection is one product. Only
attention goes sequence by sequence: each has its own cache, and its query heads that share a key
head are folded into rows. Small models spend much of their time in calls: results go into place,
and everything that does not change from layer to layer is made once per pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.builtin.buffers import HIDDEN_SCORE, Buffers, Rows, Span, SpanViews

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.builtin.cache import KvCache
    from ddtree_tune.builtin.weights import LayerWeights, ModelConfig

SAFE_SCORE = 60.0
"""Below this bound a softmax needs no maximum: exp(60) times any context stays far from overflow."""
_ONE = np.float32(1)


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


def score_bound(layer: LayerWeights, heads: int) -> float:
    """The largest attention score that a layer can give, whatever its input.

    Queries and keys have unit length before their norm weights, which hold the softmax scale, and
    a rotation changes no length.
    """
    return float(np.abs(layer.qk_norm[:heads]).max() * np.abs(layer.qk_norm[heads:]).max())


class Stack:
    """The layers of one model with the cache they read and write."""

    def __init__(
        self,
        embedding: NDArray[np.float32],
        layers: Sequence[LayerWeights],
        config: ModelConfig,
        cache: KvCache,
        *,
        max_tokens: int,
        max_count: int,
    ) -> None:
        """Allocate the buffers and tabulate the first layer.

        Args:
            embedding: (vocab, hidden) float32.
            layers: weights, first layer first.
            config: of the model.
            cache: with as many layers.
            max_tokens: most tokens of one batch.
            max_count: most tokens of one span.
        """
        self.rotary = rotary_table(config, cache.capacity)
        self._embedding = embedding
        self._layers = tuple(layers)
        self._cache = cache
        self._kv_heads = config.num_key_value_heads
        self._hidden_epsilon = np.float32(config.rms_norm_eps * config.hidden_size)
        self._head_epsilon = np.float32(config.rms_norm_eps * config.head_dim)
        self._safe = [score_bound(layer, config.num_attention_heads) < SAFE_SCORE for layer in layers]
        self._buffers = Buffers(config, max_tokens, max_count, cache.capacity)
        self._first = self._tabulate(layers[0], config)

    def _tabulate(self, layer: LayerWeights, config: ModelConfig) -> NDArray[np.float32]:
        """What the first layer projects, before rotation: it sees a token and nothing else.

        Returns:
            (vocab, (heads + 2 kv_heads) head_dim) float32.
        """
        squares = np.empty(len(self._embedding), np.float32)
        normed = np.empty_like(self._embedding)
        normalise(self._embedding, self._hidden_epsilon, squares, normed)
        table: NDArray[np.float32] = normed @ layer.qkv
        by_head = table.reshape(len(table), -1, config.head_dim)[:, : len(layer.qk_norm)]
        normalise(by_head, self._head_epsilon, np.empty(by_head.shape[:-1], np.float32), by_head)
        np.multiply(by_head, layer.qk_norm, out=by_head)
        return table

    def forward(
        self,
        tokens: NDArray[np.int64],
        positions: NDArray[np.int64],
        spans: Sequence[Span],
        taps: Sequence[int] = (),
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Run all layers and write the tokens' keys and values.

        Args:
            tokens: (N,) int64.
            positions: (N,) int64.
            spans: whose tokens they are; together they cover the rows.
            taps: layers whose outputs are kept.

        Returns:
            The last hidden states (N, hidden) float32, and the outputs of the tapped layers side
            by side, (N, taps hidden) float32, or None without taps.
        """
        x = self._embedding[tokens]
        rows = self._buffers.rows(len(x))
        views = [self._buffers.span(rows, span) for span in spans]
        rotary = self.rotary[positions]
        features = np.empty((len(x), len(taps), x.shape[1]), np.float32) if taps else None
        for index in range(len(self._layers)):
            if index == 0:
                np.take(self._first, tokens, 0, out=rows.qkv, mode="clip")
            else:
                self._project(index, x, rows)
            self._attend(index, x, rotary, rows, views)
            self._transform(index, x, rows)
            if features is not None and index in taps:
                features[:, taps.index(index)] = x
        return x, None if features is None else features.reshape(len(x), -1)

    def _project(self, index: int, x: NDArray[np.float32], rows: Rows) -> None:
        """Queries, keys and values, before rotation."""
        layer = self._layers[index]
        normalise(x, self._hidden_epsilon, rows.squares, rows.normed)
        np.matmul(rows.normed_P, layer.qkv, out=rows.qkv_P)
        normalise(rows.qk, self._head_epsilon, rows.head_squares, rows.qk)
        np.multiply(rows.qk, layer.qk_norm, out=rows.qk)

    def _attend(
        self,
        index: int,
        x: NDArray[np.float32],
        rotary: NDArray[np.complex64],
        rows: Rows,
        spans: Sequence[SpanViews],
    ) -> None:
        """Rotation and self-attention, with the residual."""
        layer, caches, kv_heads, safe = self._layers[index], self._cache.rows[index], self._kv_heads, self._safe[index]
        np.multiply(rows.q_pairs, rotary[:, :, None], out=rows.query_pairs)
        np.multiply(rows.k_pairs, rotary, out=rows.k_pairs)
        for span in spans:
            cache, scores = caches[span.slot], span.scores
            cache[:, span.new] = rows.kv[:, span.own]
            keys, values = cache[:kv_heads, span.seen], cache[kv_heads:, span.seen]
            if span.single:
                keys, values = keys[:, None], values[:, None]
            np.matmul(span.queries, keys.swapaxes(-1, -2), out=scores)
            if span.mask is not None:
                np.add(span.own_scores, span.mask, out=span.own_scores)
            if not safe:
                np.subtract(scores, scores.max(-1, keepdims=True), out=scores)
            np.exp(scores, out=scores)
            np.add.reduce(scores, -1, out=span.sums)
            np.matmul(scores, values, out=span.attended)
        np.divide(rows.attended, rows.sums, out=rows.joined)
        np.matmul(rows.joined_P, layer.out, out=rows.added_P)
        np.add(x, rows.added, out=x)

    def _transform(self, index: int, x: NDArray[np.float32], rows: Rows) -> None:
        """SwiGLU with its residual.

        The weights give the negated gate g: silu(-g) up = -g up / (1 + exp(g)), and the sign is in
        the last matrix.
        """
        layer = self._layers[index]
        normalise(x, self._hidden_epsilon, rows.squares, rows.normed)
        np.matmul(rows.normed_P, layer.gate_up, out=rows.gate_up_P)
        np.exp(rows.gate, out=rows.gated)
        np.add(rows.gated, _ONE, out=rows.gated)
        np.divide(rows.gate, rows.gated, out=rows.gated)
        np.multiply(rows.gated, rows.up, out=rows.gated)
        np.matmul(rows.gated_P, layer.down, out=rows.added_P)
        np.add(x, rows.added, out=x)
