"""Tokens of requests, and how fast they came inside a window.

A window is looked at in equal parts, so that a step in it is seen and an interval can be drawn from
a single repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from ddtree_tune.core import timing
from ddtree_tune.core.flags import PARTS, failed
from ddtree_tune.core.stats import Interval, repeats_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.trace import RequestTrace, Window


def useful(traces: Iterable[RequestTrace]) -> list[RequestTrace]:
    """Requests whose tokens were of use: all but failed ones."""
    return [trace for trace in traces if not failed(trace)]


def tokens_inside(traces: Sequence[RequestTrace], window: Window) -> NDArray[np.int64] | None:
    """Tokens that arrived in each twentieth of the window, (PARTS,) int64; None if any is unknown."""
    parts = np.zeros(PARTS, dtype=np.int64)
    for trace in useful(traces):
        if not trace.chunk_ns or trace.chunk_ns[0] >= window.end_ns or trace.chunk_ns[-1] < window.start_ns:
            continue
        tokens = timing.new_tokens(trace)
        if tokens is None:
            return None
        since = np.asarray(trace.chunk_ns, dtype=np.int64) - window.start_ns
        at = since * PARTS // (window.end_ns - window.start_ns)
        inside = (at >= 0) & (at < PARTS)
        np.add.at(parts, at[inside], tokens[inside])
    return parts


def rates_of(tokens: Sequence[NDArray[np.int64]], windows: Sequence[Window]) -> list[NDArray[np.float64]]:
    """Token rate of each twentieth of each window that saw a token; a dead server has no rate, not 0."""
    return [parts * PARTS / window.seconds for parts, window in zip(tokens, windows, strict=True) if parts.any()]


def interval_of(
    tps: Sequence[float], rates: Sequence[NDArray[np.float64]]
) -> tuple[Interval | None, Literal["repeats", "sub_windows"] | None]:
    """95 % interval of the throughput and what it was drawn from.

    Over repeats as `repeats_interval` has it; else the percentile bootstrap of the mean over twentieths of the
    windows (Efron 1979). Twentieths of one window share its luck, so theirs is the narrower one.
    """
    if (interval := repeats_interval(tps)) is not None:
        return interval, "repeats"
    if not rates:
        return None, None
    pool = np.concatenate(rates)
    draws = np.random.default_rng(0).choice(pool, size=(2000, len(pool))).mean(axis=1)
    return Interval(float(np.percentile(draws, 2.5)), float(np.percentile(draws, 97.5))), "sub_windows"
