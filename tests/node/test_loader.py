"""The loader of a trial: a spec's cells against a server, each repeat with prompts of its own."""

import os

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.trace import Phase
from ddtree_tune.core.workload import OpenLoop
from ddtree_tune.node.crew import crew_size
from ddtree_tune.node.loadgen import NodeLoader
from tests.truth.harness import MODEL, assert_real, cell

SPEC = SweepSpec.parse(
    """
    name: loader
    space: {budget: [8], topk: [4], window: [none]}
    load: {contexts: [60, 300], concurrency: [2], output_tokens: 24, window_s: 0.4, repeats: 2}
    """,
    "loader.yaml",
)


@pytest.fixture(scope="module")
def runs(truth_process):
    """Both cells, twice."""
    truth_process.script(ttft_s=0.02, gap_s=0.01, remember=True)
    loader = NodeLoader(SPEC.load, seed=0, stall_s=30)
    endpoint = Endpoint(truth_process.base_url, MODEL)
    return [loader.run(endpoint, shape, repeat) for repeat in range(2) for shape in SPEC.load.cells()]


def test_every_cell_is_measured_with_prompts_of_its_length(runs):
    assert [run.cell for run in runs] == 2 * list(SPEC.load.cells())
    assert [run.repeat for run in runs] == [0, 0, 1, 1]
    for run in runs:
        assert_real(run)
        metrics = measure([run])
        assert metrics.prompt_tokens_mean == pytest.approx(run.cell.context, abs=8)
        assert metrics.output_tps > 0
        assert not {"cached", "failures", "short", "prompt_length", "output_length", "no_tokens"} & set(metrics.flags)


def test_no_prompt_is_sent_twice_in_a_sweep(runs):
    sent = [trace.prompt_sha for run in runs for trace in run.traces]
    assert len(sent) > 40
    assert len(set(sent)) == len(sent)


def test_the_text_behind_the_prompts_is_named(runs):
    (sha,) = {run.prompts_sha for run in runs}
    assert len(sha) == 64


def test_another_trial_of_the_sweep_sends_the_same_prompts(truth_process, runs):
    truth_process.script(ttft_s=0.02, gap_s=0.005)
    endpoint = Endpoint(truth_process.base_url, MODEL)
    shape = SPEC.load.cells()[1]
    again = NodeLoader(SPEC.load, seed=0, stall_s=30).run(endpoint, shape, 1)
    first = runs[3]
    window = [{t.prompt_sha for t in run.traces if t.phase is Phase.WINDOW} for run in (first, again)]
    fewer, more = sorted(window, key=len)
    assert len(fewer) >= 4
    assert fewer <= more


def test_a_repeat_that_is_measured_again_sends_fresh_prompts(truth_process):
    truth_process.script(ttft_s=0.02, gap_s=0.01)
    endpoint = Endpoint(truth_process.base_url, MODEL)
    loader = NodeLoader(SPEC.load, seed=0, stall_s=30)
    shape = SPEC.load.cells()[0]
    first, second = ({t.prompt_sha for t in loader.run(endpoint, shape, 0).traces} for _ in range(2))
    assert len(first) > 6
    assert len(second) > 6
    assert not first & second


def test_a_cell_that_is_shared_by_processes_is_the_same_cell(truth_process):
    truth_process.script(ttft_s=0.05, gap_s=0.05, remember=True)
    endpoint = Endpoint(truth_process.base_url, MODEL)
    loader = NodeLoader(SPEC.load.model_copy(update={"processes": 2}), seed=0, stall_s=30)
    shape = SPEC.load.cells()[1]
    run = loader.run(endpoint, shape, 0)
    assert_real(run)
    metrics = measure([run])
    assert metrics.in_flight_mean == pytest.approx(2, rel=0.02)
    assert metrics.prompt_tokens_mean == pytest.approx(shape.context, abs=8)
    assert not {"cached", "failures", "short", "prompt_length", "output_length", "no_tokens"} & set(metrics.flags)
    assert loader._counts[endpoint].short  # what the members learned is known for the next cell


def test_a_process_is_taken_for_every_64_streams_while_cores_last(monkeypatch):
    cells = {users: cell(users) for users in (1, 64, 65, 512)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert {users: crew_size(one) for users, one in cells.items()} == {1: 1, 64: 1, 65: 2, 512: 7}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert {crew_size(one) for one in cells.values()} == {1}
    assert crew_size(cell(arrival=OpenLoop(1000.0))) == 1
