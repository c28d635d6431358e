"""A node dies under its trial, raylet, workers, server and all; the load comes from a node of its own."""

import socket

import psutil
import pytest

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.node.store import Store
from tests.cluster.driven import Driven, alive, engine_of, halted, halted_trial, titles
from tests.cluster.machines import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SPEC = """
name: halved
space: {budget: [4, 8], topk: [4], window: [none]}
baselines: [none]
seeds: [{budget: 8, topk: 4, window: none}]
load: {contexts: [60], concurrency: [1, 2], output_tokens: 32, window_s: 0.7}
coding: {problems: five_kinds, limit: 1, max_tokens: 400, concurrency: 1}
search: {trials: 3, final: {settings: 0, rounds: 0}}
cluster: {load_on: load_nodes}
"""
LOAD_IP = "127.0.0.2"
SERVER_IPS = ("127.0.0.3", "127.0.0.4")
"""Addresses of their own, so that a server on loopback would be seen."""
KEPT_BY_RAY = (("actors", "actor_id"), ("placement_groups?detail=true", "placement_group_id"))
"""What a head still lists of sweeps that have ended."""
GPUS = 2
"""Of each node, as far as Ray knows."""


@pytest.fixture(scope="module")
def battered(machines, tmp_path_factory):
    """What a sweep said, its records, the trial that was hit, and where each node and actor was."""
    home = tmp_path_factory.mktemp("halved")
    (home / "spec.yaml").write_text(SPEC)
    first, second = SERVER_IPS
    machines.leave()
    earlier = {one[name] for kind, name in KEPT_BY_RAY for one in machines.listed(kind)}
    machines.join('{"load_node": 2}', LOAD_IP)
    machines.join(address=first, gpus=GPUS)
    wait_for(lambda: machines.up() == 2)
    driven = Driven("ddtree_tune.run", home / "spec.yaml", "--results", home / "results", machines=machines)
    try:
        driven.says(r"1.00 x no speculation")  # measured alone: two engines share few cores here
        with halted_trial(driven.process, machines):  # a node takes as long to come as a tiny trial
            machines.join(address=second, gpus=GPUS)
            driven.says(r"2 nodes up")
        hit = driven.says(r"\] (\d+) 8/4/none(?: on \S+)? \| gate passed").group(1)
        with halted(driven.process):  # the trial is a step further at most when they are found
            (node,) = [one for one in machines.nodes if engine_of(below(one), hit)]
            engine = engine_of(below(node), hit)
            (trial,) = [one for one, name in titles(below(node)) if name.startswith("ray::TuneTrial")]
        driven.says(rf" {hit} 8/4/none(?: on \S+)? \| i60 c1: ")
        trial.suspend()  # or the next cell may end before the node does
        machines.end(node)
        machines.nodes.remove(node)
        assert not alive([engine])
        driven.says(rf" {hit} 8/4/none(?: on \S+)? \| failed in load: node_lost: the trial's process must live until")
        driven.says(r"1 node up")
        wait_for(lambda: len(machines.applications()) == 1)
        assert driven.ends() == 0, driven.text
    finally:
        driven.close()
    at = {node["node_id"]: node["node_ip"] for node in machines.listed("nodes")}
    listed, groups = ([one for one in machines.listed(kind) if one[name] not in earlier] for kind, name in KEPT_BY_RAY)
    actors = [(one["name"].partition("-")[0], at.get(one["node_id"])) for one in listed]
    bundles = [bundle["unit_resources"] for one in groups for bundle in one["bundles"]]
    machines.leave()
    (folder,) = (home / "results").iterdir()
    return driven.text, Store(str(folder)).read_records(raw=True), hit, at, set(actors), bundles


def below(process):
    return psutil.Process(process.pid).children(recursive=True)


def test_a_trial_whose_node_dies_is_a_row_and_is_tried_on_another_node(battered):
    text, records, hit, *_ = battered
    assert "Traceback" not in text
    (lost,) = [one for one in records if one.trial_id.startswith(hit)]
    assert lost.failure.failure is FailureClass.NODE_LOST
    assert [cell.metrics.concurrency for cell in lost.cells] == [1]
    assert lost.cells[0].runs[0].traces
    assert [span.stage for span in lost.spans][-1] == "lost"
    whole = [one for one in records if one is not lost]
    assert {one.status for one in whole} == {TrialStatus.COMPLETE}
    assert {one.config.label for one in whole} == {"no speculation", "8/4/none", "4/4/none"}
    assert len({one.node for one in records}) == 2
    assert lost.node not in {one.node for one in whole if one.config == lost.config}


def test_a_trial_holds_the_gpus_of_its_node(battered):
    *_, bundles = battered
    trials = [bundle for bundle in bundles if "sweep_node" in bundle]
    assert trials
    assert all(trial["sweep_node"] == 1 and trial["GPU"] == GPUS for trial in trials)
    assert all("GPU" not in bundle for bundle in bundles if "sweep_node" not in bundle)


def test_load_and_grading_run_where_the_spec_says(battered):
    *_, actors, _ = battered
    assert {at for kind, at in actors if kind in {"load", "grade"}} == {LOAD_IP}
    assert {at for kind, at in actors if kind == "lease"} <= {*SERVER_IPS, None}


def test_the_route_of_the_load_is_kept_and_the_server_binds_its_nodes_address(battered):
    _, records, _, at, *_ = battered
    for record in records:
        assert record.plan.host == at[record.node]
        assert record.plan.host in SERVER_IPS
        assert record.door.startswith(f"http://{record.plan.host}:{record.plan.port}/")
        for route in [run.route for cell in record.cells for run in cell.runs]:
            assert (route.from_host, route.to_host) == (socket.gethostname(), record.fingerprint.hostname)
            assert route.to_ip == record.plan.host
            # One machine has one clock: all that a comparison can find is its own error.
            assert 0 < route.clock_error_ns < 10e9
            assert abs(route.clock_ahead_ns) <= route.clock_error_ns
