"""The loader of a trial: a spec's cells against a server, each repeat with prompts of its own."""

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.loadgen import NodeLoader
from tests.truth.harness import MODEL, assert_real

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
    return [loader.run(endpoint, cell, repeat) for repeat in range(2) for cell in SPEC.load.cells()]


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
    cell = SPEC.load.cells()[1]
    again = NodeLoader(SPEC.load, seed=0, stall_s=30).run(endpoint, cell, 1)
    first = runs[3]
    window = [{t.prompt_sha for t in run.traces if t.phase is Phase.WINDOW} for run in (first, again)]
    fewer, more = sorted(window, key=len)
    assert len(fewer) >= 4
    assert fewer <= more
