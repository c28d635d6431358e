"""The work arrays of a stack of layers, cut to one batch and to its spans.

Cutting costs more than many an operation on so few numbers. So the views of a batch size are made
once and kept, and those of a span once per pass, not once per layer.

Suffixes: N tokens of the batch, P the same rounded up to `ROW_MULTIPLE`, G query heads per key head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ddtree_tune.builtin.weights import ModelConfig

ROW_MULTIPLE = 12
"""OpenBLAS multiplies rows in twelves (AVX2, 0.3.31); what is left over takes other kernels, which
round differently. Every product is filled up, so a token's linear layers give the same bits whether
it is decoded alone, in a batch or in a tree. Attention makes no such promise: its sums depend on the
tokens beside it, by 6e-5 of a logit. A matrix-vector product would decode a single user more than
twice as fast: benchmarks/builtin."""

HIDDEN_SCORE = np.float32(-1e9)
"""Added to the score of a token that may not be seen; its exponential is exactly 0."""


def padded(count: int) -> int:
    """Rows that a product of ``count`` rows computes."""
    return -(-count // ROW_MULTIPLE) * ROW_MULTIPLE


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


@dataclass(frozen=True, slots=True)
class Rows:
    """Views of one batch size; what ends in P also holds the filling rows."""

    squares: NDArray[np.float32]
    """(N,) float32."""
    normed: NDArray[np.float32]
    normed_P: NDArray[np.float32]
    """(P, hidden) float32, input of a projection."""
    qkv: NDArray[np.float32]
    qkv_P: NDArray[np.float32]
    qk: NDArray[np.float32]
    """(N, heads + kv_heads, head_dim) float32."""
    head_squares: NDArray[np.float32]
    """(N, heads + kv_heads) float32."""
    q_pairs: NDArray[np.complex64]
    """(N, kv_heads, G, head_dim / 2) complex64."""
    k_pairs: NDArray[np.complex64]
    """(N, kv_heads, head_dim / 2) complex64."""
    kv: NDArray[np.float32]
    """(2 kv_heads, N, head_dim) float32."""
    queries: NDArray[np.float32]
    """(kv_heads, N, G, head_dim) float32."""
    query_pairs: NDArray[np.complex64]
    """The same as (N, kv_heads, G, head_dim / 2) complex64."""
    attended: NDArray[np.float32]
    """(kv_heads, N, G, head_dim) float32."""
    sums: NDArray[np.float32]
    """(kv_heads, N, G, 1) float32."""
    joined: NDArray[np.float32]
    """(kv_heads, N, G, head_dim) float32, laid out as ``joined_P``."""
    joined_P: NDArray[np.float32]
    """(P, heads head_dim) float32."""
    gate_up_P: NDArray[np.float32]
    gate: NDArray[np.float32]
    """(N, ffn) float32, as projected."""
    up: NDArray[np.float32]
    """(N, ffn) float32."""
    gated: NDArray[np.float32]
    gated_P: NDArray[np.float32]
    added: NDArray[np.float32]
    added_P: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SpanViews:
    """One span's parts of a batch.

    A single token has an axis of its own for each head, so that attention is a matrix times a vector.
    """

    slot: int
    mask: NDArray[np.float32] | None
    single: bool
    own: slice
    """Rows of the batch."""
    new: slice
    """Cache rows of its own tokens."""
    seen: slice
    """Cache rows that it attends to."""
    queries: NDArray[np.float32]
    """(kv_heads, count G, head_dim), single (kv_heads, G, 1, head_dim), float32."""
    scores: NDArray[np.float32]
    own_scores: NDArray[np.float32]
    """(kv_heads, count, G, count) float32: the scores among its own tokens."""
    sums: NDArray[np.float32]
    attended: NDArray[np.float32]


class Projection:
    """A product with a matrix, from one buffer to the next."""

    def __init__(self, matrix: NDArray[np.float32], max_rows: int) -> None:
        self._matrix = matrix
        self._out = np.zeros((padded(max_rows), matrix.shape[1]), np.float32)

    def __call__(self, rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """Multiply.

        Args:
            rows: (P, in) float32.
            count: how many of the rows matter.

        Returns:
            (N, out) float32, overwritten by the next call.
        """
        return np.matmul(rows, self._matrix, out=self._out[: len(rows)])[:count]

    def filled(self, count: int) -> NDArray[np.float32]:
        """The product's buffer with its filling rows, (P, out) float32, for a product of its own."""
        return self._out[: padded(count)]


class Buffers:
    """Allocated once for the largest batch."""

    def __init__(self, config: ModelConfig, max_tokens: int, max_count: int, capacity: int) -> None:
        """Allocate.

        Args:
            config: of the model.
            max_tokens: most tokens of a batch.
            max_count: most tokens of a span.
            capacity: cache rows of a slot.
        """
        self._config = config
        rows = padded(max_tokens)
        heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        # Zeros, not empty: filling rows must hold finite numbers.
        self._normed = np.zeros((rows, config.hidden_size), np.float32)
        self._squares = np.zeros(rows, np.float32)
        self._head_squares = np.zeros((rows, heads + kv_heads), np.float32)
        self._qkv = np.zeros((rows, (heads + 2 * kv_heads) * head_dim), np.float32)
        self._queries = np.zeros(rows * heads * head_dim, np.float32)
        self._attended = np.zeros(rows * heads * head_dim, np.float32)
        self._sums = np.zeros(rows * heads, np.float32)
        self._joined = np.zeros((rows, heads * head_dim), np.float32)
        self._gate_up = np.zeros((rows, 2 * config.intermediate_size), np.float32)
        self._gated = np.zeros((rows, config.intermediate_size), np.float32)
        self._added = np.zeros((rows, config.hidden_size), np.float32)
        self._scores = np.zeros(heads * max_count * capacity, np.float32)
        self._known: dict[int, Rows] = {}

    def rows(self, count: int) -> Rows:
        """The views of a batch of ``count`` tokens."""
        if count not in self._known:
            self._known[count] = self._cut(count)
        return self._known[count]

    def _cut(self, count: int) -> Rows:
        config, filled = self._config, padded(count)
        heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        group = heads // kv_heads
        by_head = self._qkv[:count].reshape(count, heads + 2 * kv_heads, head_dim)
        pairs = by_head.view(np.complex64)
        folded = (kv_heads, count, group, head_dim)
        queries = self._queries[: count * heads * head_dim].reshape(folded)
        ffn = config.intermediate_size
        return Rows(
            squares=self._squares[:count],
            normed=self._normed[:count],
            normed_P=self._normed[:filled],
            qkv=self._qkv[:count],
            qkv_P=self._qkv[:filled],
            qk=by_head[:, : heads + kv_heads],
            head_squares=self._head_squares[:count],
            q_pairs=pairs[:, :heads].reshape(count, kv_heads, group, head_dim // 2),
            k_pairs=pairs[:, heads : heads + kv_heads],
            kv=by_head[:, heads:].swapaxes(0, 1),
            queries=queries,
            query_pairs=queries.view(np.complex64).swapaxes(0, 1),
            attended=self._attended[: count * heads * head_dim].reshape(folded),
            sums=self._sums[: count * heads].reshape(kv_heads, count, group, 1),
            joined=self._joined[:count].reshape(count, kv_heads, group, head_dim).swapaxes(0, 1),
            joined_P=self._joined[:filled],
            gate_up_P=self._gate_up[:filled],
            gate=self._gate_up[:count, :ffn],
            up=self._gate_up[:count, ffn:],
            gated=self._gated[:count],
            gated_P=self._gated[:filled],
            added=self._added[:count],
            added_P=self._added[:filled],
        )

    def span(self, rows: Rows, span: Span) -> SpanViews:
        """The views of one span of a batch."""
        kv_heads, _, group, head_dim = rows.queries.shape
        own = slice(span.first, span.first + span.count)
        end = span.start + span.count
        seen = end - span.visible_from
        single = span.count == 1
        shape = (kv_heads, group, 1) if single else (kv_heads, span.count * group)
        scores = self._scores[: kv_heads * span.count * group * seen]
        return SpanViews(
            slot=span.slot,
            mask=span.mask,
            single=single,
            own=own,
            new=slice(span.start, end),
            seen=slice(span.visible_from, end),
            queries=rows.queries[:, own].reshape(*shape, head_dim),
            scores=scores.reshape(*shape, seen),
            own_scores=scores.reshape(kv_heads, span.count, group, seen)[..., seen - span.count :],
            sums=rows.sums[:, own].reshape(shape),
            attended=rows.attended[:, own].reshape(*shape, head_dim),
        )
