"""Whole cells against a server whose truth is recorded: the harness mistakes of the field."""

import time
from dataclasses import replace

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.spec import LoadSpec
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.loadgen import NodeLoader
from tests.truth.harness import MODEL, QUICK, assert_real, cell, load, tokens_sent_inside


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


def test_d11_refusals_take_the_cell_out_of_the_score(truth):
    truth.script(fault="503", fault_every=3, ttft_s=0.05)
    run = load(truth, cell(3))
    metrics = measure([run])
    assert metrics.requests_failed / len(run.traces) == pytest.approx(1 / 3, abs=0.1)
    assert metrics.errors[0][0] == "http_503"
    assert "failures" in metrics.flags
    assert not metrics.scored
    assert metrics.ttft_s.mean > 0.05  # refusals, which come at once, are in no average


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


def test_d26_a_client_that_cannot_keep_up_says_so(truth):
    truth.script(gap_s=0, steps=[1], flood=True)
    flood = measure([load(truth, cell(16, output=2000, window_s=1.5), limits=replace(QUICK, drain_s=0.5))])
    assert flood.output_tokens > 1000
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


def test_d19_prompts_are_natural_text_through_the_chat_template(truth):
    """The server accepts 4 of words that it knows, 1 of anything else."""
    truth.script(steps=[1], steps_for={"def ": [4], "Write": [4], "unction": [4]}, gap_s=0.01)
    natural = LoadSpec(contexts=(300,), concurrency=(2,), output_tokens=32, window_s=0.5)
    loader = NodeLoader(natural, seed=0, stall_s=10)
    (shape,) = natural.cells()
    run = loader.run(Endpoint(truth.base_url, MODEL), shape, 0)
    assert_real(run)
    metrics = measure([run])
    assert metrics.accept_len == pytest.approx(4)
    assert all(trace.prompt_family.startswith("code/") for trace in run.traces)
    streams = [record["body"] for record in truth.truth() if record["body"].get("stream")]
    assert all(body["messages"][0]["role"] == "user" and "prompt" not in body for body in streams)
    random = measure([load(truth, cell(2, context=300, window_s=1.5))])
    assert random.accept_len == pytest.approx(1)


@pytest.mark.parametrize(("per_user", "p95", "p99"), [(4, False, False), (16, True, False), (60, True, True)])
def test_a_percentile_is_blank_where_the_requests_are_too_few(truth, per_user, p95, p99):
    truth.script(gap_s=0.002, ttft_s=0.002)
    metrics = measure([load(truth, cell(2, output=8, window_s=0.02, min_requests=2 * per_user), limits=QUICK)])
    for summary in (metrics.ttft_s, metrics.e2e_s):
        assert (summary.p95 is not None, summary.p99 is not None) == (summary.count >= 20, summary.count >= 100)
    assert metrics.requests_ok > 0


def test_repeats_in_two_groups_are_bimodal_and_still_scored(truth):
    runs = []
    for repeat, gap_s in enumerate((0.02, 0.04, 0.02, 0.04)):
        truth.script(gap_s=gap_s, ttft_s=gap_s)
        runs.append(load(truth, cell(2, window_s=1.1), repeat=repeat))
    both, alike = measure(runs), measure(runs[::2] * 2)
    assert "bimodal" in both.flags
    assert "bimodal" not in alike.flags
    assert both.output_tps_ci95.high / both.output_tps_ci95.low > 1.5
