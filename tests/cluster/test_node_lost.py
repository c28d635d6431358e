"""A node dies under its trial, raylet, workers, server and all: the trial is tried on another one."""

import psutil
import pytest

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.node.store import Store
from tests.cluster.driven import Driven, alive, engine_of
from tests.cluster.machines import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SPEC = """
name: halved
space: {budget: [4, 8], topk: [4], window: [none]}
seeds: [{budget: 8, topk: 4, window: none}]
load: {contexts: [60], concurrency: [1, 2], output_tokens: 32, window_s: 0.7}
coding: null
search: {trials: 4, final: {settings: 0, rounds: 0}}
"""


@pytest.fixture
def one_node(machines):
    """The cluster with a node; all are gone afterwards."""
    machines.join()
    wait_for(lambda: machines.up() == 1)
    yield machines
    machines.leave()


def below(process):
    return psutil.Process(process.pid).children(recursive=True)


def test_a_trial_whose_node_dies_is_a_row_and_is_tried_on_another_node(one_node, tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    argv = ("ddtree_tune.run", tmp_path / "spec.yaml", "--results", tmp_path / "results")
    driven = Driven(*argv, address=one_node.gcs)
    try:
        driven.says(r"1.00 x no speculation")  # measured alone: two engines share few cores here
        one_node.join()
        driven.says(r"2 nodes up")
        hit = driven.says(r"\] (\d+) 8/4/none \| i60 c1: ").group(1)
        (node,) = [one for one in one_node.nodes if engine_of(below(one), hit)]
        engine = engine_of(below(node), hit)
        one_node.end(node)
        one_node.nodes.remove(node)
        assert not alive([engine])
        driven.says(rf" {hit} 8/4/none \| failed in load: node_lost: the trial's process must live until its end")
        driven.says(r"1 node up")
        wait_for(lambda: len(one_node.applications()) == 1)
        assert driven.ends() == 0, driven.text
    finally:
        driven.close()
    assert "Traceback" not in driven.text
    (folder,) = (tmp_path / "results").iterdir()
    records = Store(str(folder)).read_records(raw=True)
    (lost,) = [one for one in records if one.trial_id.startswith(hit)]
    assert lost.failure.failure is FailureClass.NODE_LOST
    assert [cell.metrics.concurrency for cell in lost.cells] == [1]
    assert lost.cells[0].runs[0].traces
    assert [span.stage for span in lost.spans][-1] == "lost"
    whole = [one for one in records if one is not lost]
    assert {one.status for one in whole} == {TrialStatus.COMPLETE}
    assert {one.config.label for one in whole} == {"no speculation", "chain", "8/4/none", "4/4/none"}
    assert len({one.node for one in records}) == 2
    assert lost.node not in {one.node for one in whole if one.config == lost.config}
