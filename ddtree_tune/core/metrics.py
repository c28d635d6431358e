"""Traces of one cell, all its repeats, to the numbers of that cell.

The window decides by time: it opens once the warm-up is done and every slot is busy, and every
token that arrives inside it counts, whichever request brings it. Requests that failed bring none.
A number that cannot be had is None, with the reason in ``reasons``.

Which requests a latency is taken from: TTFT from those sent inside a window, TPOT and E2E from
those that ended well inside one, chunk and token gaps from all gaps that lie inside one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddtree_tune.core import flags as judge
from ddtree_tune.core import timing
from ddtree_tune.core.errors import LoadError
from ddtree_tune.core.flags import DISQUALIFYING, PARTS, CellFlag
from ddtree_tune.core.stats import Interval, bootstrap_median, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.trace import CellRun, RequestTrace, Window

_NEED_A_WINDOW = ("output_tps", "output_tokens", "user_tps", "accept_len", "in_flight_mean", "answering_max")


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample in five numbers; a percentile is None where the sample is too small for it."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class CellMetrics:
    """One cell over all its repeats."""

    cell_id: str
    context: int
    concurrency: int | None
    """Requests in flight of a closed loop; None in an open loop."""
    repeats: int
    set_aside: int
    """Repeats that a busy moment of the machine spoiled and that were measured again."""
    window_s: float
    """Measured time, summed over the repeats."""
    output_tps: float | None
    """Output tokens in the window over the window's length; median of the repeats."""
    output_tps_ci95: Interval | None
    ci_basis: Literal["repeats", "sub_windows"] | None
    """What the interval was drawn from: repeats if there are three, else twentieths of the windows."""
    output_tps_repeats: tuple[float, ...]
    """One value per repeat that has one."""
    user_tps: float | None
    """1 / mean TPOT: what one user sees."""
    ttft_s: Summary
    icl_s: Summary
    """Gaps between chunks."""
    itl_s: Summary
    """Chunk gaps over new tokens, once per token."""
    tpot_s: Summary
    e2e_s: Summary
    accept_len: float | None
    """Tokens per verify step, bonus included, pooled."""
    cached_share: float | None
    """Share of the prompt tokens that the prefix cache held."""
    in_flight_mean: float | None
    """Requests in flight, weighted by time, inside the windows."""
    answering_max: int | None
    """Most requests that were receiving text at the same time: the batch the server really ran."""
    requests_sent: int
    """Sent inside the windows."""
    requests_ok: int
    """Ended well inside the windows."""
    requests_failed: int
    """Failed at any time, warm-up included; those we cancelled are not failures."""
    errors: tuple[tuple[str, int], ...]
    """(class, count) of all that did not end well, cancelled ones included, most frequent first."""
    output_tokens: int | None
    """Tokens that arrived inside the windows."""
    prompt_tokens_mean: float | None
    client_lag_p99_s: float | None
    flags: tuple[CellFlag, ...]
    reasons: tuple[tuple[str, str], ...]
    """(field, why it is None)."""

    @property
    def scored(self) -> bool:
        """Whether the cell may enter the score."""
        return self.output_tps is not None and not DISQUALIFYING.intersection(self.flags)


def measure(runs: Sequence[CellRun], *, running_cap: int | None = None, set_aside: int = 0) -> CellMetrics:
    """Pool the repeats of one cell.

    Args:
        runs: at least one repeat, all of the same cell.
        running_cap: most requests that the server runs at once, by its own word.
        set_aside: how many spoiled repeats are not among the runs.

    Raises:
        LoadError: there is no run, or they are of different cells.
    """
    if len({run.cell for run in runs}) != 1:
        raise LoadError(f"runs must be repeats of one cell, but got {sorted({run.cell.cell_id for run in runs})}")
    cell = runs[0].cell
    windows = [(run, run.window) for run in runs if run.window is not None and run.window.seconds > 0]
    traces = [trace for run in runs for trace in run.traces]
    sent = [t for run, window in windows for t in judge.measured(run.traces) if _in(t.sent_ns, window)]
    ended = [t for run, window in windows for t in judge.measured(run.traces) if t.ok and _in(t.end_ns, window)]
    tokens = [_tokens_inside(run.traces, window) for run, window in windows]
    counted = [one for one in tokens if one is not None]
    complete = bool(tokens) and len(counted) == len(tokens)
    rates = _rates(counted, [window for _, window in windows]) if complete else []
    tps = [float(parts.mean()) for parts in rates]
    interval, basis = _interval(tps, rates)
    gaps = [timing.chunk_gaps_s(t, window) for run, window in windows for t in _useful(run.traces)]
    itl = [timing.token_gaps_s(t, window) for run, window in windows for t in _useful(run.traces)]
    icl = _summary(np.concatenate(gaps) if gaps else np.empty(0))
    tpot = _summary(_present(timing.tpot_s(trace) for trace in ended))
    lag = percentile([ns / 1e9 for run in runs for ns in run.lag_ns], 99)
    prompts = [t.prompt_tokens for t in judge.measured(traces) if t.prompt_tokens is not None]
    prompt_mean = float(np.mean(prompts)) if prompts else None
    failures = sum(map(judge.failed, traces))
    checks = {
        CellFlag.CAPPED: any(judge.capped(run, running_cap) for run in runs),
        CellFlag.CACHED: judge.cache_helped(judge.measured(traces), cell),
        CellFlag.CLIENT_LIMITED: judge.client_limited(runs, lag, icl.mean),
        CellFlag.FAILURES: judge.too_many_failures(traces),
        CellFlag.UNSTEADY: 2 * sum(map(judge.has_step, rates)) > len(rates),
        CellFlag.SHORT: any(map(judge.too_short, runs)),
        CellFlag.BIMODAL: judge.two_groups(tps),
        CellFlag.NO_TOKENS: bool(windows) and not complete,
        CellFlag.PROMPT_LENGTH: judge.wrong_prompt_length(prompt_mean, cell),
        CellFlag.OUTPUT_LENGTH: judge.wrong_output_length(judge.measured(traces), cell),
    }
    metrics = CellMetrics(
        cell_id=cell.cell_id,
        context=cell.context,
        concurrency=cell.concurrency,
        repeats=len(runs),
        set_aside=set_aside,
        window_s=sum(window.seconds for _, window in windows),
        output_tps=float(np.median(tps)) if tps else None,
        output_tps_ci95=interval,
        ci_basis=basis,
        output_tps_repeats=tuple(tps),
        user_tps=1 / tpot.mean if tpot.mean else None,
        ttft_s=_summary(_present(timing.ttft_s(trace) for trace in _useful(sent))),
        icl_s=icl,
        itl_s=_summary(np.concatenate([one for one in itl if one is not None]) if itl and complete else np.empty(0)),
        tpot_s=tpot,
        e2e_s=_summary(_present(timing.e2e_s(trace) for trace in ended)),
        accept_len=timing.accept_length(ended),
        cached_share=_cached_share(judge.measured(traces)),
        in_flight_mean=_in_flight(windows),
        answering_max=max((int(judge.answering(run)[1].max()) for run, _ in windows), default=None),
        requests_sent=len(sent),
        requests_ok=len(ended),
        requests_failed=failures,
        errors=tuple(Counter(str(trace.error) for trace in traces if trace.error is not None).most_common()),
        output_tokens=sum(int(parts.sum()) for parts in counted) if complete else None,
        prompt_tokens_mean=prompt_mean,
        client_lag_p99_s=lag,
        flags=tuple(flag for flag, set_ in checks.items() if set_),
        reasons=(),
    )
    return _with_reasons(metrics, failures=failures)


def _in(at_ns: int, window: Window) -> bool:
    return window.start_ns <= at_ns < window.end_ns


def _useful(traces: Iterable[RequestTrace]) -> list[RequestTrace]:
    """Requests whose tokens were of use: all but failed ones."""
    return [trace for trace in traces if not judge.failed(trace)]


def _tokens_inside(traces: Sequence[RequestTrace], window: Window) -> NDArray[np.int64] | None:
    """Tokens that arrived in each twentieth of the window, (PARTS,) int64; None if any is unknown."""
    parts = np.zeros(PARTS, dtype=np.int64)
    for trace in _useful(traces):
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


def _rates(tokens: Sequence[NDArray[np.int64]], windows: Sequence[Window]) -> list[NDArray[np.float64]]:
    """Token rate of each twentieth of each window that saw a token; a dead server has no rate, not 0."""
    return [parts * PARTS / window.seconds for parts, window in zip(tokens, windows, strict=True) if parts.any()]


def _interval(
    tps: Sequence[float], rates: Sequence[NDArray[np.float64]]
) -> tuple[Interval | None, Literal["repeats", "sub_windows"] | None]:
    """95 % interval of the throughput and what it was drawn from.

    Source: percentile bootstrap, Efron 1979: of the median over repeats, or of the mean over
    twentieths of the windows. Twentieths of one window share its luck, so theirs is the narrower one.
    """
    if (interval := bootstrap_median(tps)) is not None:
        return interval, "repeats"
    if not rates:
        return None, None
    pool = np.concatenate(rates)
    draws = np.random.default_rng(0).choice(pool, size=(2000, len(pool))).mean(axis=1)
    return Interval(float(np.percentile(draws, 2.5)), float(np.percentile(draws, 97.5))), "sub_windows"


def _summary(values: NDArray[np.float64]) -> Summary:
    sample = values.tolist()
    mean = float(values.mean()) if sample else None
    return Summary(len(sample), mean, percentile(sample, 50), percentile(sample, 95), percentile(sample, 99))


def _present(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.asarray([value for value in values if value is not None], dtype=np.float64)


def _cached_share(traces: Sequence[RequestTrace]) -> float | None:
    """Cached over prompt tokens; None if no request reports cached tokens.

    SGLang leaves the field out of a reply whose prompt was not cached at all, so a reply without
    it counts as zero once any other has it.
    """
    if all(trace.cached_tokens is None for trace in traces):
        return None
    prompt = sum(trace.prompt_tokens or 0 for trace in traces)
    return sum(trace.cached_tokens or 0 for trace in traces) / prompt if prompt else None


def _in_flight(windows: Sequence[tuple[CellRun, Window]]) -> float | None:
    area = total = 0
    for run, window in windows:
        durations, level = timing.levels([(trace.sent_ns, trace.end_ns) for trace in run.traces], window)
        area += int((durations * level).sum())
        total += int(durations.sum())
    return area / total if total else None


def _with_reasons(metrics: CellMetrics, *, failures: int) -> CellMetrics:
    """Say of every missing number why it is missing."""
    if not metrics.window_s:
        why = "the slots were never all busy" + (f": {failures} requests failed" if failures else "")
        absent = dict.fromkeys(_NEED_A_WINDOW, why)
    else:
        uncounted = "the server did not count the tokens of every request"
        absent = {
            "output_tps": uncounted if metrics.output_tokens is None else "no token arrived in the window",
            "output_tokens": uncounted,
            "user_tps": "no request with two chunks and counted tokens ended in the window",
            "accept_len": "no request that ended in the window reports verify steps",
        }
    absent |= {
        "output_tps_ci95": absent["output_tps"],
        "cached_share": "the server does not report cached tokens",
        "prompt_tokens_mean": "the server does not report prompt tokens",
        "client_lag_p99_s": "fewer than 100 lag samples",
    }
    reasons = tuple((name, why) for name, why in absent.items() if getattr(metrics, name) is None)
    return replace(metrics, reasons=reasons)
