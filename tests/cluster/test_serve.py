"""Serve owns the engine, and an engine never outlives its trial nor comes back under its name."""

import json
import os
import signal
import time

import psutil
import pytest
import ray
from ray import serve

from ddtree_tune.cluster.serve import ServedEngine, new_lease
from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.core.spec import SweepSpec
from tests.node.test_engine import CONFIG, SPEC, ScriptDialect, gone, listening

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_nodes")]


def served(mode, app, pids=""):
    dialect = ScriptDialect(mode=mode, pids=str(pids))
    return ServedEngine(SweepSpec.parse(SPEC, "s"), dialect, app=app, lease=new_lease(f"lease-{app}"))


def wait_for(condition, limit_s=20):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def test_a_served_engine_starts_answers_and_is_gone_after_stop():
    engine = served("ok", "trial-a")
    handle = engine.start(CONFIG)
    assert listening(handle.plan.port)
    assert handle.served_model_name.startswith("trial-a-")
    assert engine.state().alive
    assert "ready" in engine.stop()
    assert not listening(handle.plan.port)
    assert "trial-a" not in serve.status().applications
    assert engine.stop() == ""


def test_an_engine_that_ends_at_start_keeps_its_class_across_serve():
    engine = served("oom", "trial-b")
    with pytest.raises(EngineError, match="CUDA out of memory") as raised:
        engine.start(CONFIG)
    assert raised.value.failure is FailureClass.STARTUP_OOM
    assert "CUDA out of memory" in engine.state().log_tail
    engine.stop()


def test_a_replica_that_serve_restarts_starts_no_second_engine(tmp_path):
    engine = served("ok", "trial-c", tmp_path / "pids")
    handle = engine.start(CONFIG)
    (server,) = json.loads((tmp_path / "pids").read_text())
    replica = psutil.Process(handle.pid).parent().pid
    os.kill(replica, signal.SIGKILL)
    assert gone([handle.pid, server])

    def refused():
        try:
            return not engine.state().alive
        except EngineError as error:
            return error.failure is FailureClass.NODE_LOST

    wait_for(refused)
    with pytest.raises(EngineError) as raised:
        wait_for(lambda: engine._handle.start.remote(CONFIG).result(timeout_s=10))
    assert "restarted" in str(raised.value) or "EngineError" in type(raised.value).__name__
    engine.stop()


def test_an_engine_ends_with_the_trial_that_held_its_lease(tmp_path):
    pids = tmp_path / "pids"

    @ray.remote(num_cpus=0)
    class Trial:
        def start(self):
            self.engine = served("ok", "trial-d", pids)
            return self.engine.start(CONFIG)

    trial = Trial.remote()
    handle = ray.get(trial.start.remote())
    assert listening(handle.plan.port)
    ray.kill(trial)
    assert gone([handle.pid, *json.loads(pids.read_text())])
    wait_for(lambda: "trial-d" not in serve.status().applications)
