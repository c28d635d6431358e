"""Which nodes a sweep may use, and how many proposals are out at a time."""

import pytest

from ddtree_tune.cluster.joining import connected
from ddtree_tune.cluster.room import Room, count_exclusive, trial_bundles
from ddtree_tune.cluster.search import StudySearcher
from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.errors import FailureClass, PlacementError
from ddtree_tune.node.search import Study
from tests.builders import record, spec

HEAD = {"CPU": 8.0, "node:__internal_head__": 1.0}
H200 = {"CPU": 192.0, "GPU": 8.0, "sweep_node": 1.0, "accelerator_type:H200": 1.0}
B300 = {"CPU": 192.0, "GPU": 8.0, "sweep_node": 1.0, "accelerator_type:B300": 1.0}
PLAIN = {"CPU": 8.0, "sweep_node": 1.0}
LOADING = {"CPU": 8.0, "load_node": 2.0}


@pytest.mark.parametrize(
    ("nodes", "count"), [([], 0), ([HEAD], 0), ([HEAD, H200, H200], 2), ([HEAD | PLAIN, PLAIN], 2)]
)
def test_nodes_that_offer_the_resource_count(nodes, count):
    assert count_exclusive(nodes) == count


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([H200, B300, B300], "of one kind, but got B300 beside H200"),
        ([PLAIN, B300], "of one kind, but got B300 beside no accelerator"),
        ([H200, H200 | {"GPU": 4.0}], "as many GPUs each, but got 4 beside 8"),
        ([PLAIN | {"sweep_node": 2.0}], "must offer sweep_node: 1, which makes it exclusive, but got 2 on one"),
    ],
)
def test_nodes_that_trials_could_share_or_that_do_not_compare_are_refused(nodes, words):
    with pytest.raises(PlacementError, match=words):
        count_exclusive(nodes)


def test_a_trial_that_cannot_start_has_a_reason():
    assert Room.of([HEAD], "engine_node").obstacle() == "no node that offers sweep_node: 1 is up"
    full = "2 nodes up, and none has room: a trial needs "
    beside = Room.of([HEAD, PLAIN, PLAIN], "engine_node")
    assert beside.obstacle() == full + "sweep_node: 1 and CPU: 3 free on one node"
    away = Room.of([LOADING, PLAIN, PLAIN], "load_nodes")
    needs = "CPU: 1 and sweep_node: 1 free on one node, CPU: 2 and load_node: 1 free on one node"
    assert away.obstacle() == full + needs
    assert Room.of([HEAD, PLAIN], "load_nodes").obstacle().startswith("no node that offers load_node is up")


def test_gpus_that_somebody_else_holds_are_among_the_reasons():
    assert "sweep_node: 1 and CPU: 3 and GPU: 8 free on one node" in Room.of([HEAD, H200], "engine_node").obstacle()
    assert "CPU: 1 and sweep_node: 1 and GPU: 8 free" in Room.of([LOADING, H200], "load_nodes").obstacle()


def test_a_spec_that_names_another_number_of_gpus_is_refused_before_a_trial_waits_for_ever():
    room = Room.of([HEAD, H200], "engine_node")
    assert room.gpus_held(None) == room.gpus_held(8) == 8
    assert Room.of([HEAD], "engine_node").gpus_held(4) == 4  # nodes that come later
    with pytest.raises(PlacementError, match=r"cluster.gpus must be what every node has, .* but got 4 where .* have 8"):
        room.gpus_held(4)


@pytest.mark.parametrize("load_on", ["engine_node", "load_nodes"])
def test_a_trial_holds_every_gpu_of_its_node(load_on):
    assert Room.of([HEAD, LOADING, H200, H200], load_on).gpus == 8
    assert Room.of([HEAD, LOADING], load_on).gpus == 0
    bundles, _ = trial_bundles(load_on, 8)
    assert [bundle.get("GPU", 0) for bundle in bundles] == [8] + [0] * (len(bundles) - 1)
    assert bundles[0]["sweep_node"] == 1
    assert all("GPU" not in bundle for bundle in trial_bundles(load_on)[0])


def test_no_more_trials_run_than_the_machines_for_load_can_serve():
    assert Room.of([HEAD, PLAIN, PLAIN, PLAIN], "engine_node").trials == 3
    assert Room.of([LOADING, PLAIN, PLAIN, PLAIN], "load_nodes").trials == 2
    assert Room.of([LOADING, LOADING, PLAIN, PLAIN, PLAIN], "load_nodes").trials == 3


def test_a_server_shares_no_node_with_the_load_of_others():
    with pytest.raises(PlacementError, match="must offer sweep_node or load_node, but got one with both"):
        Room.of([PLAIN | LOADING], "load_nodes")
    assert Room.of([PLAIN | LOADING], "engine_node").trials == 1
    (engine, workers), _ = trial_bundles("load_nodes")
    assert "load_node" not in engine
    assert workers == {"CPU": 2, "load_node": 1}


def test_load_from_other_nodes_needs_a_cluster(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with (
        pytest.raises(PlacementError, match="but got an embedded Ray of this machine alone; set RAY_ADDRESS"),
        connected("load_nodes"),
    ):
        pass


def test_as_many_proposals_are_out_as_there_are_nodes_and_more_when_nodes_join():
    sweep = spec()
    searcher = StudySearcher(Study(sweep, BuiltinDialect()), 0)

    def lose(trial_id):
        searcher.lost(trial_id, record(sweep, searcher.asked[trial_id], failure=FailureClass.NODE_LOST))

    assert searcher.suggest("a") is not None  # waits for the first node, so that Tune goes round
    assert searcher.suggest("b") is None
    searcher.nodes = 2
    assert searcher.suggest("b")["label"] == "chain"
    assert searcher.suggest("c") is None
    searcher.nodes = 3
    assert searcher.suggest("c") is not None
    searcher.nodes = 1
    lose("a")
    assert searcher.suggest("d") is None
    lose("b")
    lose("c")
    assert searcher.suggest("d")["label"] == "no speculation"  # it was lost, and is asked again
