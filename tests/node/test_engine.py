"""The life of an engine process: launch, early end, stop of the whole tree, whoever is killed."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.engine import Algorithm, EngineConfig, LaunchPlan
from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.engine import NodeEngine
from tests.node.launching import start

SERVER = str(Path(__file__).with_name("lifecycle_server.py"))
SPEC = """
name: life
engine: {start_deadline_s: 8, stop_grace_s: 0.5}
space: {budget: [8], topk: [4], window: [none]}
load: {contexts: [60], concurrency: [1]}
"""
CONFIG = EngineConfig(Algorithm.TREE, 8, 4, None)


@dataclass(frozen=True)
class ScriptDialect(BuiltinDialect):
    """Launches the server of known truth."""

    mode: str = "ok"
    pids: str = ""

    def plan(self, config, slot):
        argv = ["python", SERVER, self.mode, "--port", str(slot.port), "--name", slot.served_model_name]
        if self.pids:
            argv += ["--pids", self.pids]
        return LaunchPlan(tuple(argv), (), slot.host, slot.port, slot.served_model_name)


def engine(mode, pids="", gate=None):
    spec = SweepSpec.parse(SPEC, "s")
    spec = spec.model_copy(update={"gate": spec.gate.model_copy(update=gate or {})})
    return NodeEngine(spec, ScriptDialect(mode=mode, pids=str(pids)), name="trial-1")


def gone(pids, limit_s=10):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        alive = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
        if not alive:
            return True
        time.sleep(0.02)
    return False


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_is_launched_under_a_fresh_name_and_stopped_for_good():
    owner = engine("ok")
    first = start(owner, CONFIG)
    assert owner.state().alive
    assert first.endpoint.served_model_name.startswith("trial-1-")
    assert 0 < first.ready_s < 8
    log = owner.stop()
    assert "ready" in log
    assert not listening(first.plan.port)
    assert not owner.state().alive
    second = start(owner, CONFIG)
    assert (second.endpoint.served_model_name, second.plan.port) != (first.endpoint.served_model_name, first.plan.port)
    owner.stop()
    assert owner.stop() == ""


@pytest.mark.parametrize(
    ("mode", "failure", "words"),
    [
        ("crash", FailureClass.STARTUP_CRASH, "exit code 3: RuntimeError: the shards do not match"),
        ("oom", FailureClass.STARTUP_OOM, "CUDA out of memory"),
        ("bad_flag", FailureClass.INVALID_CONFIG, "unrecognized arguments: --speculative-ddtree-budget"),
    ],
)
def test_a_server_that_ends_at_start_ends_the_wait_at_once_with_its_reason(mode, failure, words):
    owner = engine(mode)
    begun = time.monotonic()
    with pytest.raises(EngineError, match=words) as raised:
        start(owner, CONFIG)
    assert raised.value.failure is failure
    assert time.monotonic() - begun < 5
    assert not owner.state().alive
    owner.stop()


def test_a_server_that_never_answers_ends_at_the_deadline():
    owner = engine("never_ready")
    with pytest.raises(EngineError, match="ready within 8 s") as raised:
        start(owner, CONFIG)
    assert raised.value.failure is FailureClass.STARTUP_TIMEOUT
    owner.stop()


def test_a_server_that_dies_later_is_seen_with_its_exit():
    owner = engine("dies_later")
    handle = start(owner, CONFIG)
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"{handle.endpoint.base_url}/die", timeout=5)
    assert gone([handle.pid])
    state = owner.state()
    assert (state.alive, state.exit_code, state.failure) == (False, 9, FailureClass.CRASH_REQUEST)
    owner.stop()


@pytest.mark.parametrize(
    ("mode", "failure", "words"),
    [
        ("dies_asked", FailureClass.CRASH_REQUEST, "exit code 9"),
        ("fails_asked", FailureClass.NO_GENERATION, "server_info must answer 200, but got 500"),
        ("hangs_asked", FailureClass.NO_GENERATION, "within the gate's 0.5 s"),
    ],
)
def test_a_healthy_server_that_does_not_say_what_it_is_is_at_fault_itself(mode, failure, words):
    owner = engine(mode, gate={"deadline_s": 0.5})
    handle = start(owner, CONFIG)
    with pytest.raises(EngineError, match=words) as raised:
        owner.probe(handle)
    assert raised.value.failure is failure
    assert "\n" not in raised.value.message
    owner.stop()


@pytest.mark.parametrize("mode", ["ok", "stubborn", "forks"])
def test_stop_ends_the_whole_tree_even_one_that_ignores_sigterm_or_leaves_the_session(mode, tmp_path):
    owner = engine(mode, tmp_path / "pids")
    handle = start(owner, CONFIG)
    pids = json.loads((tmp_path / "pids").read_text())
    owner.stop()
    assert gone([handle.pid, *pids], limit_s=1)


@pytest.mark.parametrize("victim", ["owner", "supervisor"])
@pytest.mark.parametrize("mode", ["ok", "stubborn"])
def test_nothing_outlives_its_owner_whoever_is_killed(victim, mode, tmp_path):
    pids_file = tmp_path / "pids"
    owner = subprocess.Popen(
        [sys.executable, __file__, mode, str(pids_file)], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )
    supervisor = int(owner.stdout.readline())
    pids = json.loads(pids_file.read_text())
    os.kill(owner.pid if victim == "owner" else supervisor, signal.SIGKILL)
    # The server's own child has no death signal of its own: where the supervisor is killed, init adopts it.
    must_go = pids if victim == "owner" else pids[:1]
    try:
        assert gone([supervisor, *must_go])
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_a_second_start_is_refused():
    owner = engine("ok")
    start(owner, CONFIG)
    with pytest.raises(EngineError, match="one server at a time"):
        start(owner, CONFIG)
    owner.stop()


if __name__ == "__main__":
    # The owner that the test above kills.
    print(start(engine(sys.argv[1], sys.argv[2]), CONFIG).pid, flush=True)
    time.sleep(600)
