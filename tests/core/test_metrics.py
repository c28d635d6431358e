"""The formulas on hand-made traces, and properties that hold for any."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core import timing
from ddtree_tune.core.errors import LoadError
from ddtree_tune.core.flags import CellFlag, two_groups
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import CellRun, Phase, RequestError, RequestTrace, SpecCounters, Window
from ddtree_tune.core.workload import Cell, ClosedLoop, OpenLoop

MS = 1_000_000
CELL = Cell(1000, 256, ClosedLoop(1), window_s=1.0)


def trace(sent_ms=0, first_ms=100, gap_ms=20, chunks=64, per_chunk=4, *, counted=True, **changes):
    """A request with evenly spaced chunks of equal size."""
    times = tuple((sent_ms + first_ms + i * gap_ms) * MS for i in range(chunks))
    made = RequestTrace(
        request_id="r",
        phase=Phase.WINDOW,
        prompt_sha="0" * 16,
        prompt_family="code",
        sent_ns=sent_ms * MS,
        first_byte_ns=times[0] if times else None,
        chunk_ns=times,
        chunk_tokens=tuple(per_chunk * (i + 1) for i in range(chunks)) if counted else None,
        end_ns=(times[-1] if times else sent_ms * MS) + 1,
        prompt_tokens=1000,
        cached_tokens=0,
        completion_tokens=chunks * per_chunk,
        finish_reason="length",
        spec=SpecCounters(chunks, (0,) * (per_chunk - 1) + (chunks,)) if per_chunk else None,
        text="x" * chunks,
        reasoning="",
    )
    return replace(made, **changes)


def run(*traces, start_ms=0, end_ms=1500, cell=CELL, **changes):
    return replace(CellRun(cell, 0, Window(start_ms * MS, end_ms * MS), traces), **changes)


@st.composite
def traces(draw):
    """Any request that ended well."""
    tokens = draw(st.lists(st.integers(1, 9), min_size=1, max_size=40))
    gaps = draw(st.lists(st.integers(0, 200), min_size=len(tokens), max_size=len(tokens)))
    sent = draw(st.integers(0, 3000))
    times, at = [], sent + 1
    for gap in gaps:
        at += gap
        times.append(at * MS)
    counts = [sum(tokens[: i + 1]) for i in range(len(tokens))]
    tail = draw(st.integers(0, 2))
    return trace(
        sent,
        chunks=len(tokens),
        chunk_ns=tuple(times),
        chunk_tokens=tuple(counts) if draw(st.booleans()) else None,
        completion_tokens=counts[-1] + tail,
        end_ns=times[-1] + 1,
        sent_ns=sent * MS,
    )


def test_tokens_are_counted_and_not_chunks():
    metrics = measure([run(trace())])
    assert metrics.output_tokens == 256
    assert metrics.tpot_s.mean == pytest.approx(63 * 0.02 / 252)
    assert metrics.user_tps == pytest.approx(200)
    assert metrics.itl_s.mean == pytest.approx(0.005)
    assert metrics.icl_s.mean == pytest.approx(0.02)
    assert metrics.output_tps == pytest.approx(256 / 1.5)


def test_usage_alone_gives_the_same_numbers_where_chunks_are_equal():
    exact, spread = measure([run(trace())]), measure([run(trace(counted=False))])
    assert (spread.output_tokens, spread.tpot_s, spread.itl_s) == (exact.output_tokens, exact.tpot_s, exact.itl_s)


def test_tpot_equals_the_fields_formula_when_the_first_chunk_holds_one_token():
    one = trace(per_chunk=1)
    assert timing.tpot_s(one) == pytest.approx((timing.e2e_s(one) - timing.ttft_s(one)) / (64 - 1))


def test_a_text_chunk_without_a_token_ends_no_gap():
    halved = trace(chunks=3, chunk_tokens=(4, 4, 8), completion_tokens=8)
    assert timing.token_gaps_s(halved, Window(0, 10**12)).tolist() == pytest.approx([0.01] * 4)


@given(traces())
def test_tokens_per_chunk_sum_to_the_servers_total(one):
    assert timing.new_tokens(one).sum() == one.completion_tokens
    assert (timing.new_tokens(one) >= 0).all()


@given(traces())
def test_tpot_times_the_later_tokens_is_the_span(one):
    tpot, counts = timing.tpot_s(one), timing.token_counts(one)
    if tpot is None:
        assert len(counts) < 2 or counts[-1] == counts[0]
    else:
        assert tpot * (counts[-1] - counts[0]) == pytest.approx((one.chunk_ns[-1] - one.chunk_ns[0]) / 1e9)


@given(traces())
def test_token_gaps_sum_to_the_span_between_chunks_with_tokens(one):
    gaps = timing.token_gaps_s(one, Window(0, 10**12))
    times = [at for at, tokens in zip(one.chunk_ns, timing.new_tokens(one), strict=True) if tokens]
    assert gaps.sum() == pytest.approx((times[-1] - times[0]) / 1e9 if times else 0)


@given(st.lists(traces(), min_size=1, max_size=6), st.integers(1, 4000))
def test_two_windows_side_by_side_hold_the_tokens_of_both(some, cut):
    whole = measure([run(*some, end_ms=5000)]).output_tokens
    halves = [measure([run(*some, end_ms=cut)]), measure([run(*some, start_ms=cut, end_ms=5000)])]
    assert sum(half.output_tokens for half in halves) == whole
    inside = sum(
        int(tokens)
        for one in some
        for at, tokens in zip(one.chunk_ns, timing.new_tokens(one), strict=True)
        if at < 5000 * MS
    )
    assert whole == inside


@settings(max_examples=50)
@given(st.lists(traces(), min_size=1, max_size=6), st.randoms())
def test_the_order_of_the_requests_changes_nothing(some, random):
    shuffled = list(some)
    random.shuffle(shuffled)
    one, other = measure([run(*some)]), measure([run(*shuffled)])
    for name in ("output_tokens", "output_tps", "flags", "errors", "requests_ok", "accept_len"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("ttft_s", "tpot_s", "e2e_s", "icl_s", "itl_s"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left.count, left.p50, left.p95) == (right.count, right.p50, right.p95)


@given(st.lists(traces(), max_size=5))
def test_in_flight_is_the_sum_of_the_overlaps(some):
    window = Window(500 * MS, 2500 * MS)
    overlap = sum(max(0, min(t.end_ns, window.end_ns) - max(t.sent_ns, window.start_ns)) for t in some)
    measured = measure([run(*some, start_ms=500, end_ms=2500)])
    assert measured.in_flight_mean == pytest.approx(overlap / (window.end_ns - window.start_ns), abs=1e-12)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=5))
def test_acceptance_is_pooled_steps_and_not_a_mean_of_means(histograms):
    some = [trace(spec=SpecCounters(sum(h), tuple(h)) if sum(h) else None, completion_tokens=1) for h in histograms]
    steps = sum(map(sum, histograms))
    tokens = sum((i + 1) * count for h in histograms for i, count in enumerate(h))
    assert timing.accept_length(some) == (pytest.approx(tokens / steps) if steps else None)


def test_without_histograms_acceptance_is_tokens_over_steps():
    bare = trace(spec=SpecCounters(64, ()))
    assert timing.accept_length([bare, trace(spec=SpecCounters(32, ()))]) == pytest.approx(512 / 96)
    assert timing.accept_length([bare, trace(spec=SpecCounters(32, ()), completion_tokens=None)]) is None


def test_a_missing_number_is_none_with_its_reason():
    silent = trace(counted=False, completion_tokens=None, cached_tokens=None, prompt_tokens=None, spec=None)
    metrics = measure([run(silent)])
    reasons = dict(metrics.reasons)
    for name in ("output_tps", "output_tokens", "user_tps", "accept_len", "cached_share", "prompt_tokens_mean"):
        assert getattr(metrics, name) is None
        assert reasons[name]
    assert CellFlag.NO_TOKENS in metrics.flags
    assert not metrics.scored


def test_a_percentile_is_blank_where_the_sample_is_too_small():
    summary = measure([run(trace(), trace(sent_ms=1), end_ms=3000)]).ttft_s
    assert summary.count == 2
    assert summary.p50 == pytest.approx(0.1)
    assert (summary.p95, summary.p99) == (None, None)


def test_failed_requests_bring_no_tokens_and_cancelled_ones_do():
    failed = trace(error=RequestError.CLOSED)
    cancelled = trace(sent_ms=1400, error=RequestError.CANCELLED, chunks=10)
    metrics = measure([run(trace(), failed, cancelled)])
    assert metrics.output_tokens == 256
    assert metrics.requests_failed == 1
    assert metrics.errors == (("closed", 1), ("cancelled", 1))
    assert measure([run(trace(), trace(sent_ms=1300, error=RequestError.CANCELLED, chunks=10))]).output_tokens == 276


def test_one_failure_in_a_hundred_is_borne_and_two_are_not():
    good = [trace(sent_ms=i) for i in range(99)]
    bad = trace(error=RequestError.HTTP_503, chunks=0, chunk_tokens=None)
    assert CellFlag.FAILURES not in measure([run(*good, bad)]).flags
    assert CellFlag.FAILURES in measure([run(*good, bad, bad)]).flags


def test_repeats_give_a_median_and_an_interval_over_themselves():
    runs = [run(trace(), end_ms=end) for end in (1400, 1500, 1600)]
    metrics = measure(runs)
    assert metrics.output_tps == pytest.approx(256 / 1.5)
    assert metrics.ci_basis == "repeats"
    assert metrics.output_tps_ci95.low < metrics.output_tps < metrics.output_tps_ci95.high
    assert metrics.repeats == 3
    single = measure(runs[:1])
    assert single.ci_basis == "sub_windows"
    assert single.output_tps_ci95.low <= single.output_tps <= single.output_tps_ci95.high


def test_repeats_of_different_cells_are_refused():
    with pytest.raises(LoadError, match="one cell"):
        measure([run(trace()), run(trace(), cell=replace(CELL, context=60))])
    with pytest.raises(LoadError, match="one cell"):
        measure([])


def filling(end_ms=1500, **changes):
    """A request whose end marker comes with the window's end, so that its slot is never idle."""
    return trace(end_ns=end_ms * MS - 1, **changes)


def test_a_clean_cell_has_no_flag_and_is_scored():
    metrics = measure([run(filling())])
    assert metrics.flags == ()
    assert metrics.scored


def flags_of(*some, **changes):
    return measure([run(*some, **changes)]).flags


def test_each_flag_is_raised_by_its_own_fault():
    assert flags_of(filling(cached_tokens=999)) == (CellFlag.CACHED,)
    assert flags_of(filling(cached_tokens=40)) == ()
    assert flags_of(filling(prompt_tokens=975)) == (CellFlag.PROMPT_LENGTH,)
    assert flags_of(filling(prompt_tokens=985)) == ()
    assert flags_of(filling(completion_tokens=200, counted=False)) == (CellFlag.OUTPUT_LENGTH,)
    assert flags_of(trace()) == (CellFlag.UNDERFILLED,)
    assert flags_of(filling(), window=None) == (CellFlag.SHORT,)
    assert CellFlag.SHORT in flags_of(filling(), end_ms=900)
    assert CellFlag.SHORT in flags_of(filling(), cell=replace(CELL, min_requests=2))
    assert CellFlag.SHORT in flags_of(filling(), cell=replace(CELL, arrival=ClosedLoop(2)))


def test_a_running_cap_below_the_concurrency_caps_the_cell():
    cell = replace(CELL, arrival=ClosedLoop(4))
    some = [filling(sent_ms=i) for i in range(4)]
    assert measure([run(*some, cell=cell)]).flags == ()
    assert measure([run(*some, cell=cell)], running_cap=3).flags == (CellFlag.CAPPED,)
    assert CellFlag.CAPPED not in measure([run(*some, cell=cell)], running_cap=4).flags


def test_two_groups_of_repeats_are_seen():
    assert two_groups([20_200, 20_150, 20_260, 12_897])
    assert not two_groups([20_200, 20_150, 20_260, 20_400])
    assert not two_groups([20_200, 12_897, 20_150])
    metrics = measure([run(filling(end_ms=end), end_ms=end) for end in (1500, 1500, 1500, 2300)])
    assert metrics.flags == (CellFlag.BIMODAL,)
    assert metrics.scored


def test_an_open_loop_has_no_concurrency():
    metrics = measure([run(trace(), cell=replace(CELL, arrival=OpenLoop(2.0)))])
    assert metrics.concurrency is None
    assert metrics.scored


def test_a_window_without_a_token_has_no_throughput_rather_than_zero():
    metrics = measure([run()])
    assert metrics.output_tokens == 0
    assert metrics.output_tps is None
    assert dict(metrics.reasons)["output_tps"] == "no token arrived in the window"
    for summary in (metrics.ttft_s, metrics.icl_s, metrics.itl_s, metrics.tpot_s, metrics.e2e_s):
        assert (summary.count, summary.mean) == (0, None)
    assert not metrics.scored
    assert measure([run(trace()), run()]).output_tps == pytest.approx(256 / 1.5)
