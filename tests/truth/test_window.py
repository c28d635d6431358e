"""What the window holds: all slots busy, no start-up, one level of throughput."""

import time
from dataclasses import replace

import pytest

from ddtree_tune.core import timing
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase
from tests.truth.harness import assert_real, cell, load, most_at_once, words


def test_d8_a_server_that_is_well_but_not_awake_costs_no_throughput(truth):
    truth.script(gap_s=0.02)
    awake = measure([load(truth, cell(2))])
    truth.script(gap_s=0.02, wakes_after_s=1.5)
    start_ns = time.perf_counter_ns()
    run = load(truth, cell(2))
    metrics = measure([run])
    assert run.window.start_ns - start_ns > 1.2e9
    assert metrics.ttft_s.mean < 0.5
    assert metrics.output_tps == pytest.approx(awake.output_tps, rel=0.15)


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


def test_a_drift_inside_the_window_is_unsteady(truth):
    shape = cell(3, output=16, window_s=2.5)
    truth.script(gap_s=0.02, ttft_s=0.02, drift_per_s=0.3)
    run = load(truth, shape)
    assert_real(run)
    assert "unsteady" in measure([run]).flags
    truth.script(gap_s=0.03, ttft_s=0.03)
    assert "unsteady" not in measure([load(truth, shape)]).flags


def test_d21_acceptance_is_pooled_from_the_window_alone(truth):
    truth.script(steps=[2, 3], steps_for={"warmup": [8]}, gap_s=0.02)
    run = load(truth, cell(2, output=50))
    assert_real(run)
    warm = [trace for trace in run.traces if trace.phase is Phase.WARMUP]
    assert timing.accept_length(warm) > 4
    assert measure([run]).accept_len == pytest.approx(2.5)


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
