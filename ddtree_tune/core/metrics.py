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
from ddtree_tune.core.absent import reasons
from ddtree_tune.core.errors import LoadError
from ddtree_tune.core.flags import DISQUALIFYING, CellFlag
from ddtree_tune.core.gpu import gpu_numbers, why_absent
from ddtree_tune.core.stats import percentile
from ddtree_tune.core.throughput import interval_of, rates_of, tokens_inside, useful

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.stats import Interval
    from ddtree_tune.core.trace import CellRun, RequestTrace, Window


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample in five numbers; a percentile is None where the sample is too small for it."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class FamilyMetrics:
    """The requests of one family of prompts in a cell: speculation gains more on some text."""

    family: str
    """The first part of the prompts' family."""
    requests_ok: int
    """Ended well inside the windows."""
    output_tokens: int | None
    """Tokens that arrived inside the windows; the families' add up to the cell's."""
    user_tps: float | None
    """1 / mean TPOT."""
    accept_len: float | None
    """Tokens per verify step, bonus included, pooled."""


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
    joules_per_token: float | None
    """Energy of the node's GPUs per output token, over the same windows."""
    power_w: float | None
    """Mean of the GPUs together."""
    gpu_memory_gib: float | None
    """Most that the GPUs together held."""
    sm_clock_mhz: float | None
    temperature_c: int | None
    """Highest of any GPU."""
    families: tuple[FamilyMetrics, ...]
    """The families of all prompts that were sent, by name; alone if there is only one."""
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
    ended = _ended(windows)
    tokens = [tokens_inside(run.traces, window) for run, window in windows]
    counted = [one for one in tokens if one is not None]
    complete = bool(tokens) and len(counted) == len(tokens)
    rates = rates_of(counted, [window for _, window in windows]) if complete else []
    tps = [float(parts.mean()) for parts in rates]
    interval, basis = interval_of(tps, rates)
    gaps = [timing.chunk_gaps_s(t, window) for run, window in windows for t in useful(run.traces)]
    itl = [timing.token_gaps_s(t, window) for run, window in windows for t in useful(run.traces)]
    icl = _summary(np.concatenate(gaps) if gaps else np.empty(0))
    tpot = _summary(_present(timing.tpot_s(trace) for trace in ended))
    lag = percentile([ns / 1e9 for run in runs for ns in run.lag_ns], 99)
    prompts = [t.prompt_tokens for t in judge.measured(traces) if t.prompt_tokens is not None]
    prompt_mean = float(np.mean(prompts)) if prompts else None
    failures = sum(map(judge.failed, traces))
    in_flight = _in_flight(windows)
    gpu = gpu_numbers(windows, [None if parts is None else int(parts.sum()) for parts in tokens])
    checks = {
        CellFlag.CAPPED: any(judge.capped(run, running_cap) for run in runs),
        CellFlag.CACHED: judge.cache_helped(judge.measured(traces), cell),
        CellFlag.CLIENT_LIMITED: judge.client_limited(runs, lag, icl.mean),
        CellFlag.UNDERFILLED: judge.underfilled(in_flight, cell),
        CellFlag.FAILURES: judge.too_many_failures(traces),
        CellFlag.UNSTEADY: cell.concurrency is not None and 2 * sum(map(judge.unsteady, rates)) > len(rates),
        CellFlag.SHORT: any(map(judge.too_short, runs)),
        CellFlag.BIMODAL: judge.two_groups(tps),
        CellFlag.NO_TOKENS: bool(windows) and not complete,
        CellFlag.PROMPT_LENGTH: judge.wrong_prompt_length(prompt_mean, cell),
        CellFlag.THROTTLED: any(map(judge.throttled, runs)),
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
        ttft_s=_summary(_present(timing.ttft_s(trace) for trace in useful(sent))),
        icl_s=icl,
        itl_s=_summary(np.concatenate([one for one in itl if one is not None]) if itl and complete else np.empty(0)),
        tpot_s=tpot,
        e2e_s=_summary(_present(timing.e2e_s(trace) for trace in ended)),
        accept_len=timing.accept_length(ended),
        cached_share=_cached_share(judge.measured(traces)),
        in_flight_mean=in_flight,
        answering_max=max((int(judge.answering(run)[1].max()) for run, _ in windows), default=None),
        requests_sent=len(sent),
        requests_ok=len(ended),
        requests_failed=failures,
        errors=tuple(Counter(str(trace.error) for trace in traces if trace.error is not None).most_common()),
        output_tokens=sum(int(parts.sum()) for parts in counted) if complete else None,
        prompt_tokens_mean=prompt_mean,
        client_lag_p99_s=lag,
        joules_per_token=gpu.joules_per_token,
        power_w=gpu.power_w,
        gpu_memory_gib=gpu.gpu_memory_gib,
        sm_clock_mhz=gpu.sm_clock_mhz,
        temperature_c=gpu.temperature_c,
        families=tuple(_family(name, windows) for name in sorted({_top(trace) for trace in traces})),
        flags=tuple(flag for flag, set_ in checks.items() if set_),
        reasons=(),
    )
    return replace(metrics, reasons=reasons(metrics, failures=failures, gpu_why=why_absent(runs)))


def _family(name: str, windows: Sequence[tuple[CellRun, Window]]) -> FamilyMetrics:
    """What the cell tells of itself, of the requests of one family."""
    own = [(replace(run, traces=tuple(t for t in run.traces if _top(t) == name)), window) for run, window in windows]
    ended = _ended(own)
    tokens = [tokens_inside(run.traces, window) for run, window in own]
    counted = [int(parts.sum()) for parts in tokens if parts is not None]
    tpot = _summary(_present(timing.tpot_s(trace) for trace in ended)).mean
    return FamilyMetrics(
        family=name,
        requests_ok=len(ended),
        output_tokens=sum(counted) if tokens and len(counted) == len(tokens) else None,
        user_tps=1 / tpot if tpot else None,
        accept_len=timing.accept_length(ended),
    )


def _top(trace: RequestTrace) -> str:
    return trace.prompt_family.split("/", 1)[0]


def _ended(windows: Sequence[tuple[CellRun, Window]]) -> list[RequestTrace]:
    """Requests of the window that ended well inside it."""
    return [t for run, window in windows for t in judge.measured(run.traces) if t.ok and _in(t.end_ns, window)]


def _in(at_ns: int, window: Window) -> bool:
    return window.start_ns <= at_ns < window.end_ns


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
