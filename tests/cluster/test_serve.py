"""Serve owns the engine, and an engine never outlives its trial nor comes back under its name."""

import json
import os
import signal

import psutil
import pytest
import ray
from ray import serve

from ddtree_tune.cluster.placement import this_node
from ddtree_tune.cluster.serve import EngineApp, ServedEngine, delete_stranded
from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.core.spec import SweepSpec
from tests.cluster.machines import wait_for
from tests.node.launching import start
from tests.node.test_engine import CONFIG, SPEC, ScriptDialect, gone, listening

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.usefixtures("ray_nodes")]


def served(mode, app, pids=""):
    dialect = ScriptDialect(mode=mode, pids=str(pids))
    return EngineApp(SweepSpec.parse(SPEC, "s"), dialect, name=app)


def running(app):
    return serve.status().applications.get(app)


def test_trials_share_an_application_and_each_has_an_engine_of_its_own():
    app = served("ok", "a")
    ports = set()
    for name in ("trial-1", "trial-2"):
        engine = ServedEngine(app, name=name)
        handle = start(engine, CONFIG)
        assert listening(handle.plan.port)
        assert handle.endpoint.served_model_name.startswith(f"{name}-")
        assert engine.state().alive
        assert "ready" in engine.stop()
        assert not listening(handle.plan.port)
        assert engine.stop() == ""
        ports.add(handle.plan.port)
        replicas = running(app.name).deployments[app.name].replica_states
        assert sum(replicas.values()) == 1
    assert len(ports) == 2
    app.delete()
    assert running(app.name) is None
    app.delete()


def test_an_application_goes_with_its_node_and_not_with_another_one():
    app = served("ok", "f")
    app.deployed()
    delete_stranded([this_node()])
    assert running(app.name) is not None
    delete_stranded(["0" * 56])
    wait_for(lambda: running(app.name) is None)


def test_an_engine_that_a_trial_left_behind_is_ended_before_the_next_one_starts():
    app = served("ok", "e")
    left = start(ServedEngine(app, name="trial-1"), CONFIG)
    following = ServedEngine(app, name="trial-2")
    start(following, CONFIG)
    assert not listening(left.plan.port)
    following.stop()
    app.delete()


def test_an_engine_that_ends_at_start_keeps_its_class_across_serve():
    app = served("oom", "b")
    engine = ServedEngine(app, name="trial-1")
    with pytest.raises(EngineError, match="CUDA out of memory") as raised:
        start(engine, CONFIG)
    assert raised.value.failure is FailureClass.STARTUP_OOM
    assert "CUDA out of memory" in engine.state().log_tail
    engine.stop()
    app.delete()


def test_a_replica_that_serve_restarts_holds_no_engine_and_the_next_trial_gets_a_fresh_one(tmp_path):
    app = served("ok", "c", tmp_path / "pids")
    engine = ServedEngine(app, name="trial-1")
    handle = start(engine, CONFIG)
    (server,) = json.loads((tmp_path / "pids").read_text())
    replica = psutil.Process(handle.pid).parent().pid
    os.kill(replica, signal.SIGKILL)
    assert gone([handle.pid, server], limit_s=30)

    def restarted():
        with pytest.raises(EngineError) as raised:
            engine.state()
        assert raised.value.failure is FailureClass.NODE_LOST
        return "restarted" in str(raised.value)

    wait_for(restarted)
    with pytest.raises(EngineError, match="restarted"):
        engine.stop()
    following = ServedEngine(app, name="trial-2")
    assert listening(start(following, CONFIG).plan.port)
    following.stop()
    app.delete()


def test_an_engine_ends_with_the_trial_that_held_its_lease(tmp_path):
    pids = tmp_path / "pids"

    @ray.remote(num_cpus=0)
    class Trial:
        def start(self):
            self.app = served("ok", "d", pids)
            return self.app.name, start(ServedEngine(self.app, name="trial-1"), CONFIG)

    trial = Trial.remote()
    name, handle = ray.get(trial.start.remote())
    assert listening(handle.plan.port)
    ray.kill(trial)
    assert gone([handle.pid, *json.loads(pids.read_text())], limit_s=30)
    wait_for(lambda: running(name) is None)
