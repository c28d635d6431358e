"""The product's own trial against SGLang as it fails in public: each ends with its class, stage and one sentence.

Everything is real but the server: the supervisor, the sockets, the load process, the gate.
"""

import os
import subprocess
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from ddtree_tune.core.dialects import select
from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.errors import Blame, FailureClass, blame
from ddtree_tune.core.record import Origin, Proposal, TrialStatus
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.apart import LoaderProcess
from ddtree_tune.node.engine import NodeEngine
from ddtree_tune.node.gpus import GpuWatch
from ddtree_tune.node.sockets import listening
from ddtree_tune.trial import World, run_trial
from tests.fakes import FakeNode, FakeSink
from tests.gpu.folder import FakeGpus
from tests.sglang.harness import PAIR, running, scenario

SPEC = f"""
name: sglang
engine:
  kind: sglang
  dialect: {{dialect}}
  command: [python, -m, tests.sglang.fake]
  model: {PAIR / "target"}
  draft_model: {PAIR / "draft"}
  start_deadline_s: 20
  stall_s: 4
  stop_grace_s: 1
  release_s: 3
  args: {{args}}
space: {{{{budget: [8], topk: [4], window: [none]}}}}
load: {{{{contexts: [60, 200, 400], concurrency: [4], output_tokens: 32, window_s: 0.3}}}}
coding: null
gate: {{{{deadline_s: 8}}}}
"""
TREE = EngineConfig(Algorithm.TREE, 8, 4, None)
CHAIN = EngineConfig(Algorithm.CHAIN)
NONE = EngineConfig(Algorithm.NONE)
QUICK = {"load_s": 0.1, "capture_s": 0.1, "step_s": 0.004, "prefill_s": 0.002, "death_s": 0.3}


@pytest.fixture(scope="module")
def loader():
    spec = SweepSpec.parse(SPEC.format(dialect="ddtree_tune", args="[]"), "s")
    with LoaderProcess(spec.load, seed=0, stall_s=4) as process:
        yield process


@pytest.fixture
def gpus(tmp_path):
    folder = tmp_path / "gpus"
    folder.mkdir()
    return FakeGpus(folder)


@contextmanager
def environment(values):
    """Variables of this process, and so of every server that it launches."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def trial(
    tmp_path,
    loader,
    config=TREE,
    *,
    dialect=None,
    args="[]",
    reference=None,
    gate=None,
    gpus=None,
    deadline_s=20,
    **fields,
):
    """Run one trial to its end; returns its record and its events."""
    kind = dialect or ("sglang-dflash" if config.algorithm is not Algorithm.TREE else "ddtree_tune")
    fields = QUICK | {"build": "ddtree_tune" if kind == "ddtree_tune" else "stock"} | fields
    spec = SweepSpec.parse(SPEC.format(dialect=kind, args=args), "s")
    spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"start_deadline_s": float(deadline_s)})})
    if gate:
        spec = spec.model_copy(update={"gate": spec.gate.model_copy(update=gate)})
    spoken = select(spec.engine, 16)
    engine = NodeEngine(spec, spoken, name="trial-0001")
    proposal = Proposal("0001-abc", config, Origin.SEED, coding=False, reference=reference)
    values = scenario(tmp_path, **fields)
    with ExitStack() as stack:
        watch = None
        if gpus is not None:
            watch = stack.enter_context(GpuWatch(env=gpus.env, period_s=0.02, release_s=1.0))
            values["FAKE_GPU_DIR"] = gpus.env["FAKE_GPU_DIR"]
        stack.enter_context(environment(values))
        world = World(engine, loader, None, FakeNode(), FakeSink(), watch)
        events = list(run_trial(spec, spoken, proposal, world))
    record = events[-1].record
    if record.plan:
        assert not any(map(listening, (record.plan.port, *record.plan.further_ports)))
    return record, events


def rejected(record, failure, *words):
    """Whether a record says that, in one sentence, with the server's last lines."""
    assert record.failure is not None, (record.status, [cell.metrics for cell in record.cells], record.log[-3000:])
    assert record.failure.failure is failure, record.failure
    assert "\n" not in record.failure.reason
    for word in words:
        assert word in record.failure.reason
    return True


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
@pytest.mark.parametrize("config", [NONE, CHAIN, TREE], ids=lambda config: config.algorithm.value)
def test_a_healthy_server_is_measured_by_the_door_that_counts(tmp_path, loader, config, version):
    record, events = trial(tmp_path, loader, config, version=version, accept_len=3.0)
    assert record.status is TrialStatus.COMPLETE, record.failure
    assert record.effective.version == version
    assert record.effective.max_running_requests == 4
    assert record.differences == ()
    assert record.door == f"{record.plan.base_url}/generate"  # its stream counts verify steps in every version
    completion = next(check for check in record.gate.checks if check.name == "completion")
    assert "prompt tokens from the cache at last" in completion.detail
    assert len(record.cells) == 3
    for cell in record.cells:
        if config is NONE:
            assert cell.metrics.accept_len is None
        else:
            assert cell.metrics.accept_len == pytest.approx(3.0, abs=0.5)
        assert cell.metrics.requests_failed == 0
        assert cell.metrics.output_tps > 0
    phases = [event.starting.phase for event in events if event.starting]
    assert set(phases) <= {"starting", "loading weights", "allocating memory", "capturing CUDA graphs", "warming up"}
    assert "ready to roll" in record.log
    assert record.graphs is None or record.graphs.eager == 0
    if config is not NONE:
        assert record.gate.accept_len == pytest.approx(3.0, abs=0.6)


@pytest.mark.parametrize(
    ("startup", "failure", "words"),
    [
        ("oom", FailureClass.STARTUP_OOM, "out of memory"),
        ("capture_crash", FailureClass.CAPTURE_CRASH, "apture"),
        ("crash", FailureClass.STARTUP_CRASH, "Error"),
    ],
)
def test_a_server_that_ends_while_it_starts_ends_the_trial_at_once(tmp_path, loader, startup, failure, words):
    record, _ = trial(tmp_path, loader, startup=startup, death_s=3.0)
    assert rejected(record, failure, words)
    assert record.failure.stage == "launch"
    assert "Traceback" in record.failure.log_tail


def test_a_flag_that_this_version_does_not_know_is_an_invalid_configuration(tmp_path, loader):
    record, _ = trial(tmp_path, loader, args='["--speculative-dflash-draft-window-size", "64"]', version="0.5.23")
    assert rejected(
        record, FailureClass.INVALID_CONFIG, "unrecognized arguments: --speculative-dflash-draft-window-size"
    )


def test_stock_sglang_without_the_plugin_says_that_it_knows_no_trees(tmp_path, loader):
    record, _ = trial(tmp_path, loader, dialect="ddtree_tune", build="stock")
    assert rejected(record, FailureClass.INVALID_CONFIG, "Unknown speculative algorithm name: DDTREE")


def test_a_server_that_hangs_while_it_starts_is_late(tmp_path, loader):
    record, events = trial(tmp_path, loader, startup="hang", deadline_s=7)
    assert rejected(record, FailureClass.STARTUP_TIMEOUT, "ready within 7 s")
    assert any(event.starting for event in events)  # told in slices, so that a sweep can be stopped


def test_an_old_server_on_another_port_cannot_answer_for_a_new_one(tmp_path, loader):
    with running(tmp_path) as old:
        record, _ = trial(tmp_path, loader)
        assert record.status is TrialStatus.COMPLETE
        assert record.plan.port != old.port
        assert old.truth() == []  # nothing of the trial went there


def test_an_old_server_on_the_very_port_is_found_out(tmp_path, loader, monkeypatch):
    with running(tmp_path) as old:
        monkeypatch.setattr("ddtree_tune.node.engine.fresh_ports", lambda: (old.port, old.port + 1))
        spec = SweepSpec.parse(SPEC.format(dialect="ddtree_tune", args="[]"), "s")
        spoken = select(spec.engine, 16)
        world = World(NodeEngine(spec, spoken, name="t"), loader, None, FakeNode(), FakeSink())
        with environment(scenario(tmp_path, build="ddtree_tune")):
            record = list(run_trial(spec, spoken, Proposal("0001-a", TREE, Origin.SEED, coding=False), world))[
                -1
            ].record
        assert record.status is not TrialStatus.COMPLETE
        assert blame(record.failure.failure) is Blame.NODE, record.failure
        assert old.truth() == []


def test_a_server_that_is_healthy_and_generates_nothing_does_not_pass(tmp_path, loader):
    record, _ = trial(tmp_path, loader, mute_s=60.0, gate={"deadline_s": 2.0})
    assert rejected(record, FailureClass.NO_GENERATION, "completion")
    assert (record.failure.stage, record.cells) == ("gate", ())


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"speculative_eagle_topk": 1}, "topk asked 4, server resolved 1"),
        ({"speculative_num_draft_tokens": 5}, "budget asked 8, server resolved 4"),
        ({"speculative_algorithm": None}, "algorithm asked tree, server resolved none"),
        ({"page_size": 64}, "page_size asked 1, server resolved 64"),
        ({"max_running_requests": 2}, "max_running_requests asked 4, server resolved 2"),
        ({"effective_max_running_requests_per_dp": 2}, "must run 4 requests at once, but got max_running_requests 2"),
        ({"cuda_graph_config.decode.max_bs": 2}, "in a CUDA graph, but got graphs up to a batch of 2"),
    ],
)
def test_what_the_server_overrides_silently_is_named(tmp_path, loader, override, words):
    record, _ = trial(tmp_path, loader, override=override)
    assert rejected(record, FailureClass.SILENT_OVERRIDE, words)
    assert record.status is TrialStatus.REJECTED


def test_stock_dflash_that_overrides_a_flag_with_a_warning_is_found_out(tmp_path, loader):
    record, _ = trial(tmp_path, loader, CHAIN, args='["--speculative-num-steps", "3"]')
    assert rejected(record, FailureClass.SILENT_OVERRIDE, "speculative_num_steps asked 3, server resolved 1")


@pytest.mark.parametrize(
    ("death", "failure", "words"),
    [
        ("exit", FailureClass.CRASH_REQUEST, "ended with exit code"),
        ("oom", FailureClass.OOM_RUNTIME, "out of memory"),
        ("scheduler", FailureClass.CRASH_REQUEST, "is lost"),
        ("killed", FailureClass.CRASH_REQUEST, "signal 9; that signal comes from outside"),
    ],
)
def test_a_server_that_dies_at_the_third_cell_leaves_two(tmp_path, loader, death, failure, words):
    record, _ = trial(tmp_path, loader, die_beyond_tokens=300, death=death, death_s=2.0)
    assert rejected(record, failure, words)
    assert record.status is TrialStatus.FAILED
    assert record.failure.stage == "load"
    measured = [cell.metrics.context for cell in record.cells if cell.metrics.output_tps is not None]
    assert measured == [60, 200]
    assert len(record.failure.log_tail.splitlines()) > 20


def test_a_server_that_hangs_with_good_health_is_ended_for_its_silence(tmp_path, loader):
    record, _ = trial(tmp_path, loader, hang_after_requests=14)
    assert rejected(record, FailureClass.HANG, "a token must come within 4 s")


def test_children_that_survive_sigterm_are_ended_all_the_same(tmp_path, loader):
    record, _ = trial(tmp_path, loader, stubborn_children=True, scheduler_children=3)
    assert record.status is TrialStatus.COMPLETE, record.failure
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if record.plan.served_model_name in command]


def test_garbage_is_no_answer(tmp_path, loader):
    record, _ = trial(tmp_path, loader, text="nan")
    assert rejected(record, FailureClass.DEGENERATE_OUTPUT, "completion")


@pytest.mark.parametrize("config", [CHAIN, TREE], ids=lambda config: config.algorithm.value)
def test_a_drafter_that_is_never_right_is_inert(tmp_path, loader, config):
    record, _ = trial(tmp_path, loader, config, accept_len=1.0)
    assert rejected(record, FailureClass.SPEC_INERT, "acceptance length must be above 1.05, but got 1")


def test_greedy_text_unlike_the_baselines_is_recorded_or_fatal(tmp_path, loader):
    base, _ = trial(tmp_path, loader, NONE)
    same, _ = trial(tmp_path, loader, TREE, reference=base.answer)
    assert same.gate.lossless is True
    lossy = {"reference": base.answer, "text": "lossy"}
    recorded, _ = trial(tmp_path, loader, TREE, **lossy)
    fatal, _ = trial(tmp_path, loader, TREE, **lossy, gate={"lossless": "fatal"})
    for record in (recorded, fatal):
        assert record.gate.lossless is False
        assert record.gate.first_divergence > 0
    assert recorded.status is TrialStatus.COMPLETE, recorded.failure
    assert rejected(fatal, FailureClass.LOSSY, "leaves the baseline's")


def test_faked_acceptance_is_never_scored(tmp_path, loader):
    with environment({"SGLANG_SIMULATE_ACC_LEN": "4"}):
        record, _ = trial(tmp_path, loader)
    assert rejected(record, FailureClass.DIRTY_NODE, "SGLANG_SIMULATE_ACC_LEN, which fakes acceptance")


def test_the_gpus_of_the_node_are_metered_in_every_cell(tmp_path, loader, gpus):
    gpus.set(power_w=350.0, sm_clock_mhz=1980, temperature_c=61)
    record, _ = trial(tmp_path, loader, gpus=gpus)
    assert record.status is TrialStatus.COMPLETE, record.failure
    for cell in record.cells:
        seconds, tokens = cell.metrics.window_s, cell.metrics.output_tokens
        assert cell.metrics.power_w == pytest.approx(350.0, rel=0.02), (cell.metrics.reasons, cell.runs[0].gpu_missing)
        assert cell.metrics.joules_per_token == pytest.approx(350.0 * seconds / tokens, rel=0.1)
        assert cell.metrics.temperature_c == 61
        assert cell.metrics.gpu_memory_gib > 0.9  # what the server's scheduler holds, and the idle node's few MiB


def test_a_stranger_on_the_gpus_is_the_nodes_fault_and_nothing_is_launched(tmp_path, loader, gpus):
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        gpus.hold(stranger.pid, 4000)
        record, _ = trial(tmp_path, loader, gpus=gpus)
    finally:
        stranger.kill()
        stranger.wait()
    assert rejected(record, FailureClass.DIRTY_NODE, "no other process must be on a trial's GPUs", str(stranger.pid))
    assert (record.plan, record.failure.stage) == (None, "launch")


def test_memory_that_does_not_come_back_makes_the_node_dirty(tmp_path, loader, gpus):
    record, _ = trial(tmp_path, loader, gpus=gpus, memory_lingers_s=60.0)
    assert rejected(record, FailureClass.DIRTY_NODE, "MiB more on GPU 0")
    assert record.failure.stage == "stop"
    assert len(record.cells) == 3  # what was measured is kept, and is not believed


def test_a_server_that_decodes_outside_its_graphs_is_marked(tmp_path, loader):
    refused, _ = trial(tmp_path, loader, eager=True)
    assert rejected(refused, FailureClass.SILENT_OVERRIDE, "in a CUDA graph, but got graphs up to a batch of 0")
    allowed = {"allow": ("graph_batch",)}
    record, _ = trial(tmp_path, loader, eager=True, args='["--decode-log-interval", "5"]', gate=allowed)
    assert record.status is TrialStatus.COMPLETE, record.failure
    assert record.graphs.eager > 3
    assert record.graphs.graphed == 0
