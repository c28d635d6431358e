"""Formulas over one request: where its tokens fall in time, and what its reader waits for.

A chunk carries a whole verify step, so chunks are never counted as tokens. Times are the raw
nanoseconds of the trace; what leaves this module is in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.trace import RequestTrace, Window

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


def token_counts(trace: RequestTrace) -> Ints | None:
    """Cumulative tokens at each text chunk, exact in total.

    The server's own count per chunk where it gives one. Otherwise the request's total is spread
    evenly: chunk i of m has seen floor(n * i / m) of n tokens, so that the sum is exact and no
    chunk is off by a token from its share. Tokens without text, such as an end-of-text token,
    join the last chunk.

    Source: house rule; `continuous_usage_stats` of the OpenAI-compatible servers.

    Returns:
        (n_chunks,) int64, or None if the server told no count.
    """
    chunks = len(trace.chunk_ns)
    if trace.chunk_tokens is not None:
        counts = np.asarray(trace.chunk_tokens, dtype=np.int64)
        if chunks and trace.completion_tokens is not None:
            counts[-1] = trace.completion_tokens
        return counts
    if trace.completion_tokens is None:
        return None
    return trace.completion_tokens * np.arange(1, chunks + 1, dtype=np.int64) // max(chunks, 1)


def new_tokens(trace: RequestTrace) -> Ints | None:
    """Tokens that each text chunk brought, (n_chunks,) int64; None if the server told no count."""
    counts = token_counts(trace)
    return None if counts is None else np.diff(counts, prepend=0)


def ttft_s(trace: RequestTrace) -> float | None:
    """Send to the first chunk with text, reasoning included; None if none came.

    Source: SGLang `bench_serving`; it takes the first chunk, we the first with text, for a
    detokeniser may hold a chunk back.
    """
    return (trace.chunk_ns[0] - trace.sent_ns) / 1e9 if trace.chunk_ns else None


def e2e_s(trace: RequestTrace) -> float | None:
    """Send to the last token; None if none came.

    Source: SGLang `bench_serving`; the end marker and the usage chunk behind it do not count.
    """
    return (trace.chunk_ns[-1] - trace.sent_ns) / 1e9 if trace.chunk_ns else None


def tpot_s(trace: RequestTrace) -> float | None:
    """Seconds per token after the first chunk: (last - first) / (tokens - tokens in first chunk).

    Source: SGLang and vLLM use (E2E - TTFT) / (n - 1), which is the same when the first chunk
    holds one token. With speculation it holds a verify step, whose tokens took no time here.

    Returns:
        None below two chunks, without later tokens, or if the server told no count.
    """
    counts = token_counts(trace)
    if counts is None or len(counts) < 2 or counts[-1] <= counts[0]:
        return None
    return float((trace.chunk_ns[-1] - trace.chunk_ns[0]) / 1e9 / (counts[-1] - counts[0]))


def chunk_gaps_s(trace: RequestTrace, window: Window) -> Floats:
    """Inter-chunk latency: gaps between text chunks that both lie in the window.

    Source: aiperf, inter-chunk latency: what a reader sees stutter.

    Returns:
        (n_gaps,) float64, seconds.
    """
    return np.diff(_inside(np.asarray(trace.chunk_ns, dtype=np.int64), window)) / 1e9


def token_gaps_s(trace: RequestTrace, window: Window) -> Floats | None:
    """Inter-token latency: each chunk gap divided by its new tokens, once per token.

    A text chunk that brought no token ends no gap: its time goes to the next token.

    Source: SGLang `bench_serving` since pull request 12064.

    Returns:
        (n_tokens,) float64, seconds; None if the server told no count.
    """
    tokens = new_tokens(trace)
    if tokens is None:
        return None
    times = np.asarray(trace.chunk_ns, dtype=np.int64)
    carries = tokens > 0
    times, tokens = times[carries], tokens[carries]
    inside = (times >= window.start_ns) & (times < window.end_ns)
    gaps = np.diff(times[inside]) / 1e9
    following = tokens[inside][1:]
    return np.repeat(gaps / following, following)


def accept_length(traces: Sequence[RequestTrace]) -> float | None:
    """Committed tokens per verify step, bonus included, pooled over the requests.

    Sum of (i + 1) * h_i over sum of h_i, where h_i counts the steps that accepted i drafted
    tokens. If any request has no histogram: sum of completion tokens over sum of verify steps,
    which also counts the token of the prefill and is slightly high.

    Source: SGLang `spec_correct_drafts_histogram`; pooled, for a mean of per-request means weighs
    short requests too much. A server's lifetime mean is never used: it holds other runs.

    Returns:
        None if no request reports a verify step.
    """
    speculated = [(trace, trace.spec) for trace in traces if trace.spec is not None and trace.spec.verify_steps]
    if not speculated:
        return None
    steps = sum(sum(spec.histogram) for _, spec in speculated)
    if steps and all(spec.histogram for _, spec in speculated):
        return sum((i + 1) * count for _, spec in speculated for i, count in enumerate(spec.histogram)) / steps
    counted = [(trace.completion_tokens, spec.verify_steps) for trace, spec in speculated]
    if any(tokens is None for tokens, _ in counted):
        return None
    return sum(tokens or 0 for tokens, _ in counted) / sum(steps for _, steps in counted)


def levels(spans: Sequence[tuple[int, int]], window: Window) -> tuple[Ints, Ints]:
    """How many of the spans are open, over time, inside the window.

    Args:
        spans: (start, end) in ns.
        window: what to look at.

    Returns:
        (n,) int64 durations in ns that sum to the window, and (n,) int64 levels.
    """
    starts = np.asarray([start for start, _ in spans], dtype=np.int64).clip(window.start_ns, window.end_ns)
    ends = np.asarray([end for _, end in spans], dtype=np.int64).clip(window.start_ns, window.end_ns)
    edges = np.unique(np.concatenate([starts, ends, [window.start_ns, window.end_ns]]))
    opened = np.searchsorted(np.sort(starts), edges[:-1], side="right")
    closed = np.searchsorted(np.sort(ends), edges[:-1], side="right")
    return np.diff(edges), opened - closed


def _inside(times: Ints, window: Window) -> Ints:
    return times[(times >= window.start_ns) & (times < window.end_ns)]
