"""Replies that end by themselves: sampled, of random lengths, with the same load around them."""

import numpy as np
import pytest

from ddtree_tune.core import timing
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase
from ddtree_tune.core.workload import Ends, load_matrix
from tests.truth.harness import assert_real, load, most_at_once

(SHAPE,) = load_matrix([60], [6], output_tokens=120, window_s=2.0, ends=Ends.NATURAL)


@pytest.fixture(scope="module")
def natural(truth_process):
    """One cell of random lengths, and what the server was asked."""
    truth_process.script(ends=[8, 80], gap_s=0.03, ttft_s=0.03)
    run = load(truth_process, SHAPE)
    return run, truth_process.truth(), most_at_once(truth_process)


def test_requests_are_sampled_with_a_seed_each_and_may_end(natural):
    run, asked, _ = natural
    assert_real(run)
    bodies = [record["body"] for record in asked]
    assert {(body["temperature"], body["top_p"]) for body in bodies} == {(1.0, 0.95)}
    assert not any(body.get("ignore_eos") for body in bodies)
    assert len({body["seed"] for body in bodies}) == len(bodies)
    assert {body["max_tokens"] for body in bodies if body["max_tokens"] > 100} == {120}
    assert {trace.finish_reason for trace in run.traces if trace.phase is Phase.WINDOW and trace.ok} == {"stop"}


def test_random_lengths_are_no_fault_and_counted_to_the_token(natural):
    run, asked, _ = natural
    metrics = measure([run])
    assert not {"output_length", "short", "failures", "no_tokens"} & set(metrics.flags)
    lengths = [trace.completion_tokens for trace in run.traces if trace.ok and trace.phase is Phase.WINDOW]
    assert len(set(lengths)) > 5
    assert max(lengths) <= 80
    truly = {record["sha"]: record["completion_tokens"] for record in asked}
    assert sum(trace.completion_tokens for trace in run.traces if trace.ok) <= sum(truly.values())


def test_random_lengths_leave_exactly_so_many_in_flight(natural):
    run, _, most = natural
    assert measure([run]).in_flight_mean == pytest.approx(6, rel=0.02)
    _, level = timing.levels([(trace.sent_ns, trace.end_ns) for trace in run.traces], run.window)
    assert level.max() == 6
    assert most <= 6


def test_arms_send_the_same_prompts_with_the_same_seeds(truth, natural):
    _, asked, _ = natural
    truth.script(ends=[8, 80], gap_s=0.02, ttft_s=0.02)
    load(truth, SHAPE)
    first, second = ({r["sha"]: r["body"]["seed"] for r in records} for records in (asked, truth.truth()))
    both = first.keys() & second.keys()
    assert len(both) > 12
    assert all(first[sha] == second[sha] for sha in both)


def test_the_native_endpoint_is_asked_in_its_own_words(truth):
    truth.script(ends=[8, 80])
    run = load(truth, SHAPE, route="generate")
    sampling = [record["body"]["sampling_params"] for record in truth.truth()]
    assert {(one["temperature"], one["top_p"], one["ignore_eos"]) for one in sampling} == {(1.0, 0.95, False)}
    assert len({one["sampling_seed"] for one in sampling}) == len(sampling)
    lengths = [trace.completion_tokens for trace in run.traces if trace.ok and trace.phase is Phase.WINDOW]
    assert np.std(lengths) > 0
