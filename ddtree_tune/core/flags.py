"""What takes a cell out of the score, and how each is recognised.

A flag is a statement about the measurement, never about the setting: a slow cell has no flag.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.timing import levels
from ddtree_tune.core.trace import Phase, RequestError, Window
from ddtree_tune.core.workload import Ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.trace import CellRun, RequestTrace
    from ddtree_tune.core.workload import Cell

PARTS = 20
"""Sub-windows of a window."""
_FAILURE_SHARE = 0.01
_IDLE_SHARE = 0.02
_CACHED_SHARE = 0.01
_HEAD_TOKENS = 64
"""Tokens of chat template and prompt frame that all prompts share and a prefix cache may hold."""
_LAG_P99_S, _LAG_P99_SHARE = 0.010, 0.5
_LAG_MEAN_S, _LAG_MEAN_SHARE = 0.002, 0.1
_STEP = 0.10
_STEP_EXPLAINS = 0.6
"""Pure noise reaches it in one window of a thousand (simulated, 20 normal values)."""
_TREND_EXPLAINS = 0.5
"""Pure noise reaches it in one window of two thousand (simulated likewise)."""
_LEAST_PARTS = 2
_GAP = 0.10
_PINNED_PEAK = 0.9
_PINNED_SHARE = 0.8
_THROTTLED_SHARE = 0.10


class CellFlag(StrEnum):
    """Something about a cell that a reader of its numbers must know."""

    CAPPED = "capped"
    """The server worked on fewer requests than were in flight: a queue was measured."""
    CACHED = "cached"
    """More than 1 % of the prompt tokens, shared beginnings aside, came from the prefix cache."""
    CLIENT_LIMITED = "client_limited"
    """The client saw chunks late: a probe of its event loop was, in the mean or at the 99th percentile."""
    UNDERFILLED = "underfilled"
    """Over 2 % fewer requests than asked were in flight: slots waited for the client, or for failures."""
    FAILURES = "failures"
    """More than 1 % of the requests failed."""
    UNSTEADY = "unsteady"
    """A closed loop's throughput made a step or drifted inside the window; random arrivals always do."""
    SHORT = "short"
    """The window is missing, too short, or saw fewer requests end than it should."""
    BIMODAL = "bimodal"
    """The repeats fall into two groups; the median stands, so the cell is still scored."""
    NO_TOKENS = "no_tokens"
    """The server did not count its tokens."""
    PROMPT_LENGTH = "prompt_length"
    """The prompts are not of the cell's length by the server's count."""
    OUTPUT_LENGTH = "output_length"
    """The replies are not of the cell's length: arms would do unequal work."""
    THROTTLED = "throttled"
    """Heat or the hardware held a GPU back for over a tenth of a window: another hour or node is faster."""


DISQUALIFYING = frozenset(CellFlag) - {CellFlag.BIMODAL}
"""Flags that take a cell out of the score."""

PASSING = frozenset({CellFlag.CLIENT_LIMITED, CellFlag.UNDERFILLED, CellFlag.UNSTEADY})
"""Flags that a busy moment of the machine sets: the same cell is worth another try."""


def failed(trace: RequestTrace) -> bool:
    """Whether the request failed by the server's fault; one that we cancelled did not."""
    return trace.error not in {None, RequestError.CANCELLED}


def underfilled(in_flight_mean: float | None, cell: Cell) -> bool:
    """Whether a closed loop held less than it was asked to, by more than 2 %.

    Source: public reports of tools whose waves left slots idle; 2 % is the house's tolerance.
    """
    users = cell.concurrency
    return users is not None and in_flight_mean is not None and in_flight_mean < (1 - _IDLE_SHARE) * users


def too_many_failures(traces: Sequence[RequestTrace]) -> bool:
    """Whether over 1 % of the requests that came to an end failed, warm-up included.

    Source: public reports where refusals made latency better; field practice is 0 to 1 %.
    """
    failures = sum(failed(trace) for trace in traces)
    return failures > _FAILURE_SHARE * (failures + sum(trace.ok for trace in traces))


def cache_helped(traces: Sequence[RequestTrace], cell: Cell) -> bool:
    """Whether the prefix cache held prompts, beyond the beginning that all of them share."""
    head = min(_HEAD_TOKENS, cell.context // 2)
    known = [trace for trace in traces if trace.cached_tokens is not None and trace.prompt_tokens]
    excess = sum(max(0, (trace.cached_tokens or 0) - head) for trace in known)
    return excess > _CACHED_SHARE * sum(trace.prompt_tokens or 0 for trace in known)


def client_limited(runs: Sequence[CellRun], lag_p99_s: float | None, chunk_gap_s: float | None) -> bool:
    """Whether the client's own lag blurs what it measures.

    Its probe is late by more than 10 ms and half a chunk gap at the 99th percentile, or by more than
    2 ms and a tenth of a gap in the mean. Where chunks really were late, beside their probes, 32 and
    64 streams on two busy cores: probe p99 of 4 to 13 ms meant chunk p99 of 0.3 to 3 ms, and the
    99th percentile of the chunk gaps was off by at most 2 %; probe p99 of 66 to 88 ms meant chunk p99
    of 11 to 54 ms, and that percentile was off by 9 to 108 %. Throughput was right to 0.03 % in all.
    A bare loop on such a machine has a probe p99 of 2 to 11 ms, so that 5 ms would flag every cell.

    Source: public practice is a p99 above 5 ms or 5 % of the gap; ours is wider for the reason above.
    """
    lags = [ns / 1e9 for run in runs for ns in run.lag_ns]
    gap_s = chunk_gap_s or 0.0
    often_late = bool(lags) and float(np.mean(lags)) > max(_LAG_MEAN_S, _LAG_MEAN_SHARE * gap_s)
    return often_late or (lag_p99_s is not None and lag_p99_s > max(_LAG_P99_S, _LAG_P99_SHARE * gap_s))


def too_short(run: CellRun) -> bool:
    """Whether a repeat saw less than the cell asks: its time, its requests, one turnover per slot."""
    window = run.window
    if window is None or window.seconds < run.cell.window_s:
        return True
    ended = [trace for trace in run.traces if trace.ok and window.start_ns <= trace.end_ns < window.end_ns]
    sent_inside = sum(trace.sent_ns >= window.start_ns for trace in ended)
    return sent_inside < run.cell.min_requests or len(ended) < (run.cell.concurrency or 1)


def answering(run: CellRun) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many requests were receiving text, over time, as ``timing.levels`` returns it."""
    spans = [(trace.chunk_ns[0], trace.end_ns) for trace in run.traces if trace.chunk_ns]
    return levels(spans, run.window) if run.window else levels([], Window(0, 0))


def capped(run: CellRun, running_cap: int | None) -> bool:
    """Whether the server worked on fewer requests than were in flight.

    By its own word if it gives one. Else by what is seen: the requests that are receiving text are
    pinned, for 80 % of the window, at a peak below 90 % of the concurrency. A server that is short
    of prefill also keeps requests waiting, but its number of answering ones varies.
    """
    users = run.cell.concurrency
    if users is None or run.window is None:
        return False
    if running_cap is not None:
        return running_cap < users
    durations, level = answering(run)
    peak = level.max(initial=0)
    return bool(0 < peak <= _PINNED_PEAK * users and durations[level == peak].sum() >= _PINNED_SHARE * durations.sum())


def unsteady(parts: NDArray[np.float64]) -> bool:
    """Whether the throughput of the sub-windows, (n_parts,) float64, made a step or drifted."""
    return has_step(parts) or has_trend(parts)


def has_step(parts: NDArray[np.float64]) -> bool:
    """Whether the sub-windows are two levels rather than one: a warm-up that had not ended.

    The best split into an earlier and a later part must explain 60 % of the variance and the two
    must differ by 10 % of the mean. One part alone is an outlier, not a level.

    Source: least-squares change point.

    Args:
        parts: (n_parts,) float64, throughput of each.
    """
    total = ((parts - parts.mean()) ** 2).sum()
    if total == 0:
        return False
    splits = range(_LEAST_PARTS, len(parts) - _LEAST_PARTS + 1)
    within = [((parts[:k] - parts[:k].mean()) ** 2).sum() + ((parts[k:] - parts[k:].mean()) ** 2).sum() for k in splits]
    best = splits[int(np.argmin(within))]
    step = abs(parts[:best].mean() - parts[best:].mean())
    return bool(1 - min(within) / total >= _STEP_EXPLAINS and step > _STEP * parts.mean())


def has_trend(parts: NDArray[np.float64]) -> bool:
    """Whether the sub-windows drift: a clock that throttles, a cache that fills.

    A straight line must explain half of the variance and change by 10 % of the mean over the window.

    Source: ordinary least squares.

    Args:
        parts: (n_parts,) float64, throughput of each.
    """
    total = ((parts - parts.mean()) ** 2).sum()
    if total == 0:
        return False
    at = np.arange(len(parts)) - (len(parts) - 1) / 2
    slope = (at * parts).sum() / (at**2).sum()
    explained = slope**2 * (at**2).sum() / total
    return bool(explained >= _TREND_EXPLAINS and abs(slope) * len(parts) > _STEP * parts.mean())


def two_groups(values: Sequence[float]) -> bool:
    """Whether four or more repeats fall into two groups.

    The largest gap between neighbours must exceed 10 % of the median and twice the spread of each
    group. Source: public report of a server at 20,200 tok/s that sometimes ran at 12,897.
    """
    if len(values) < 4:
        return False
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    gaps = np.diff(ordered)
    at = int(np.argmax(gaps))
    spread = max(ordered[at] - ordered[0], ordered[-1] - ordered[at + 1])
    return bool(gaps[at] > _GAP * np.median(ordered) and gaps[at] > 2 * spread)


def wrong_prompt_length(mean: float | None, cell: Cell) -> bool:
    """Whether the mean prompt misses the context by more than its tolerance."""
    return mean is not None and abs(mean - cell.context) > cell.prompt_tolerance


def wrong_output_length(traces: Sequence[RequestTrace], cell: Cell) -> bool:
    """Whether over 1 % of the good replies are longer or shorter than asked; natural ends ask for no length."""
    if cell.ends is Ends.NATURAL:
        return False
    counts = [trace.completion_tokens for trace in traces if trace.ok and trace.completion_tokens is not None]
    return sum(count != cell.output_tokens for count in counts) > _FAILURE_SHARE * len(counts)


def throttled(run: CellRun) -> bool:
    """Whether heat or the hardware held a GPU of the node back in over 10 % of the samples.

    Such a cell ran at a clock that the setting does not have on a sound node, so that it is not to be
    compared. The power limit is another matter: a busy large GPU runs into it as a rule, it is the
    same at every hour, and a setting that draws less power for a token rightly gains from it. A
    repeat's heat comes back with its load, so that it is not measured again at once.
    """
    share = run.gpu.throttled_share if run.gpu is not None else None
    return share is not None and share > _THROTTLED_SHARE


def measured(traces: Sequence[RequestTrace]) -> list[RequestTrace]:
    """The requests that were sent after the warm-up."""
    return [trace for trace in traces if trace.phase is Phase.WINDOW]
