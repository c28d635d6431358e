"""Whole cells against a server whose truth is recorded: the harness mistakes of the field."""

import time
from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core import timing
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase, RequestError
from tests.truth.harness import QUICK, assert_real, cell, load, running, words


def tokens_sent_inside(truth, window):
    """What the server sent while the window was open."""
    return sum(
        tokens
        for record in truth.truth()
        for at, tokens in zip(record["sent_ns"], record["tokens"], strict=True)
        if window.start_ns <= at < window.end_ns
    )


def most_at_once(truth):
    """Most requests that the server held at the same time."""
    edges = [(record["received_ns"], 1) for record in truth.truth()]
    edges += [(record["end_ns"], -1) for record in truth.truth() if record["end_ns"]]
    return max(np.cumsum([step for _, step in sorted(edges)]))


def test_throughput_is_what_the_server_sent_in_the_window(truth):
    run = load(truth, cell(4))
    assert_real(run)
    metrics = measure([run])
    assert metrics.output_tokens == pytest.approx(tokens_sent_inside(truth, run.window), rel=0.02, abs=32)
    assert metrics.output_tps == pytest.approx(metrics.output_tokens / run.window.seconds)
    assert metrics.requests_failed == 0
    assert all(trace.completion_tokens == 32 for trace in run.traces if trace.phase is Phase.WINDOW)


def test_two_speeds_are_told_apart(truth):
    truth.script(gap_s=0.02, ttft_s=0.02)
    fast = measure([load(truth, cell(2))])
    truth.script(gap_s=0.04, ttft_s=0.04)
    slow = measure([load(truth, cell(2))])
    assert fast.output_tps / slow.output_tps == pytest.approx(2, rel=0.15)
    assert fast.user_tps / slow.user_tps == pytest.approx(2, rel=0.15)
    assert slow.ttft_s.p50 > fast.ttft_s.p50 + 0.01


def test_d4_a_slow_info_page_costs_no_throughput(truth):
    truth.script(gap_s=0.02)
    quick = measure([load(truth, cell(2))])
    truth.script(gap_s=0.02, info_s=5.0)
    start = time.perf_counter()
    slow = measure([load(truth, cell(2))])
    assert time.perf_counter() - start < 4
    assert slow.output_tps == pytest.approx(quick.output_tps, rel=0.15)


def test_d5_repeats_of_a_prompt_are_seen_and_fresh_prompts_are_not(truth):
    truth.script(remember=True, ttft_s=0.1)
    first, second = (load(truth, cell(2), repeat=repeat) for repeat in range(2))
    fresh = measure([first, second])
    assert "cached" not in fresh.flags
    assert fresh.cached_share == pytest.approx(0.1)  # the shared head of the template: 6 of 60
    assert fresh.ttft_s.mean > 0.1
    again = measure([load(truth, cell(2), repeat=0)])
    assert "cached" in again.flags
    assert again.cached_share > 0.3  # some are new, for the cell runs faster now
    assert again.output_tps > fresh.output_tps
    assert not again.scored


def test_a_silent_cache_is_unknown_and_not_zero(truth):
    truth.script(report_cached=False)
    metrics = measure([load(truth, cell(1))])
    assert metrics.cached_share is None
    assert dict(metrics.reasons)["cached_share"]


def test_d9_a_server_that_dies_leaves_no_throughput_and_ends_the_cell_at_once():
    with running() as server:
        server.script(die_after=12)
        start = time.perf_counter()
        run = load(server, cell(4, window_s=20.0))
        assert time.perf_counter() - start < 10
    metrics = measure([run])
    assert metrics.requests_failed >= 4
    assert {name for name, _ in metrics.errors} <= {"connect", "closed"}
    assert not metrics.scored
    assert {"failures", "short"} <= set(metrics.flags)
    assert len(run.traces) < 60  # it did not spin


def test_nobody_there_gives_no_number_at_all():
    with running() as server:
        pass
    run = load(server, cell(3, window_s=20.0))
    metrics = measure([run])
    assert run.window is None
    assert metrics.output_tps is None
    assert "failed" in dict(metrics.reasons)["output_tps"]
    assert metrics.errors == (("connect", 3),)


def test_d11_refusals_take_the_cell_out_of_the_score(truth):
    truth.script(fault="503", fault_every=3, ttft_s=0.05)
    run = load(truth, cell(3))
    metrics = measure([run])
    assert metrics.requests_failed / len(run.traces) == pytest.approx(1 / 3, abs=0.1)
    assert metrics.errors[0][0] == "http_503"
    assert "failures" in metrics.flags
    assert not metrics.scored
    assert metrics.ttft_s.mean > 0.05  # refusals, which come at once, are in no average


def test_a_server_that_refuses_everything_is_not_hammered(truth):
    truth.script(fault="500")
    start = time.perf_counter()
    run = load(truth, cell(4, window_s=30.0))
    assert time.perf_counter() - start < 10
    assert run.window is None
    assert len(run.traces) < 30
    assert {trace.error for trace in run.traces} == {RequestError.HTTP_5XX}


def test_d16_the_first_wave_of_a_shape_is_in_no_number(truth):
    truth.script(cold=4, cold_s=1.0)
    run = load(truth, cell(4))
    assert_real(run)
    metrics = measure([run])
    warm = [trace for trace in run.traces if trace.phase is Phase.WARMUP][:4]
    assert all(timing.ttft_s(trace) > 1.0 for trace in warm)
    assert metrics.e2e_s.count >= 4
    assert metrics.ttft_s.mean < 0.5
    assert not {trace.prompt_sha for trace in warm} & {
        trace.prompt_sha for trace in run.traces if trace.phase is Phase.WINDOW
    }


def test_a_step_inside_the_window_is_unsteady(truth):
    truth.script(gap_s=0.02, ttft_s=0.02)
    shape = cell(2, window_s=2.4)
    plain = words(shape)

    async def cut(phase, index):
        prompt = await plain(phase, index)
        slow = phase is Phase.WINDOW and index < 4
        return replace(prompt, text=f"crawl {prompt.text}") if slow else prompt

    run = load(truth, shape, cut=cut)
    assert_real(run)
    assert "unsteady" in measure([run]).flags


def test_d18_a_cap_of_the_running_batch_is_seen(truth):
    truth.script(running_cap=6, gap_s=0.05, ttft_s=0.001)
    run = load(truth, cell(8, window_s=1.0))
    capped = measure([run])
    assert "capped" in capped.flags
    assert capped.in_flight_mean > 7.5
    assert capped.answering_max == 6
    assert "capped" in measure([run], running_cap=6).flags  # what the server says of itself
    assert not capped.scored
    truth.script(gap_s=0.05, ttft_s=0.001)
    free = measure([load(truth, cell(8, window_s=1.0))])
    assert "capped" not in free.flags
    assert free.answering_max == 8


def test_d20_prompts_of_the_wrong_length_are_seen(truth):
    truth.script(prompt_scale=0.58)
    metrics = measure([load(truth, cell(2, context=200))])
    assert metrics.prompt_tokens_mean == pytest.approx(116)
    assert "prompt_length" in metrics.flags
    assert not metrics.scored


def test_d25_exactly_so_many_are_in_flight_and_never_more(truth):
    truth.script(jitter=0.6, gap_s=0.08, ttft_s=0.05)
    run = load(truth, cell(8, window_s=2.5))
    assert_real(run)
    metrics = measure([run])
    assert metrics.in_flight_mean == pytest.approx(8, rel=0.02)
    _, level = timing.levels([(trace.sent_ns, trace.end_ns) for trace in run.traces], run.window)
    assert level.max() == 8
    assert most_at_once(truth) <= 8
    durations = [timing.e2e_s(trace) for trace in run.traces if trace.ok]
    assert max(durations) > 1.5 * min(durations)


def test_d26_a_client_that_cannot_keep_up_says_so(truth):
    truth.script(gap_s=0, steps=[1], flood=True)
    flood = measure([load(truth, cell(16, output=2000, window_s=1.5), limits=replace(QUICK, drain_s=0.5))])
    assert flood.output_tps > 10_000
    assert "client_limited" in flood.flags
    assert not flood.scored


def test_d32_every_arm_sends_the_same_prompts_and_generates_the_same_length(truth):
    truth.script(gap_s=0.004)
    slow = load(truth, cell(2))
    truth.script(gap_s=0.002)
    fast = load(truth, cell(2))
    texts = []
    for run in (slow, fast):
        window = [trace for trace in run.traces if trace.phase is Phase.WINDOW and trace.ok]
        assert {trace.completion_tokens for trace in window} == {32}
        texts.append({trace.prompt_sha: trace.text for trace in window})
    fewer, more = texts
    assert 8 <= len(fewer) < len(more)
    assert fewer.items() <= more.items()  # same prompts, same output
