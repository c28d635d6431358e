"""The watch over a node's GPUs, on an NVML that says what the test wrote; the meter is a real process."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pynvml
import pytest

from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.core.gpu import Gpu, Throttle
from ddtree_tune.core.trace import NetworkRoute, Window
from ddtree_tune.node.gpu_meter import visible
from ddtree_tune.node.gpus import GpuWatch
from tests.builders import run
from tests.gpu import pynvml as fake_nvml
from tests.gpu.folder import FakeGpus

MS = 1_000_000
OWNER = """
import sys
from ddtree_tune.node.gpus import GpuWatch
watch = GpuWatch(period_s=0.02)
watch.start()
print(watch._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def gpus(tmp_path):
    return FakeGpus(tmp_path)


@contextmanager
def watching(gpus, **env):
    with GpuWatch(env=gpus.env | env, period_s=0.02) as watch:
        yield watch


@contextmanager
def process():
    """A process that does nothing."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def soon(true, limit_s=20.0):
    """Wait until something holds."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def seen(watch, true):
    """Wait until a fresh sample is so."""
    soon(lambda: (tick := watch.now()) is not None and true(tick))


def window(watch, length_ms=300):
    """What the GPUs do from now on."""
    start_ns = time.perf_counter_ns()
    return watch.between(start_ns, start_ns + length_ms * MS)


def ended(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_sample_is_what_nvml_says(gpus):
    gpus.set(count=2, power_w=345.6, sm_clock_mhz=1755, temperature_c=63, throttle=0x01 | 0x02 | 0x04 | 0x40)
    gpus.hold(os.getpid(), 1000, gpu=1)
    with watching(gpus) as watch:
        assert watch.gpus == tuple(Gpu(i, "Fake H200", f"GPU-fake-{i}", 140_000.0) for i in (0, 1))
        assert watch.driver == "580.95.05"
        first, second = watch.now()
        assert (first.gpu, first.memory_used_mib, first.pids) == (0, 4.0, ())
        assert (second.gpu, second.memory_used_mib, second.pids) == (1, 1004.0, (os.getpid(),))
        assert (first.power_w, first.sm_clock_mhz, first.temperature_c) == (345.6, 1755, 63)
        assert first.reasons == (Throttle.POWER_CAP, Throttle.HW_THERMAL)
        assert first.energy_mj == pytest.approx(345.6 * first.at_ns / 1e6, rel=1e-3)
        assert watch.missing() == ""


@pytest.mark.parametrize(("counter", "basis"), [(True, "counter"), (False, "power")])
def test_energy_is_power_times_time_on_either_side_of_a_step(gpus, counter, basis):
    gpus.set(count=2, energy_counter=counter, power_w=100.0)
    with watching(gpus) as watch:
        begin_ns = time.perf_counter_ns()
        quiet = watch.between(begin_ns, begin_ns + 800 * MS)
        step_ns = time.perf_counter_ns()
        gpus.set(power_w=[[0.0, 100.0], [step_ns / 1e9, 600.0]])
        seen(watch, lambda tick: tick[1].power_w == 600)
        after_ns = time.perf_counter_ns()
        seen(watch, lambda tick: tick[0].at_ns > after_ns)  # the one before may straddle the step
        busy_ns = time.perf_counter_ns()
        busy = watch.between(busy_ns, busy_ns + 800 * MS)
        both = watch.between(begin_ns, busy_ns + 800 * MS)
    assert {use.energy_basis for use in (quiet, busy, both)} == {basis}
    off = 0.1 if counter else 1e-6  # the counter is read a moment before or after its time is
    assert quiet.energy_j == pytest.approx(2 * 100 * 0.8, rel=off)
    assert busy.energy_j == pytest.approx(2 * 600 * 0.8, rel=off)
    assert busy.power_w == pytest.approx(2 * 600, rel=off)
    if counter:
        whole = 2 * (100 * (step_ns - begin_ns) + 600 * (busy_ns + 800 * MS - step_ns)) / 1e9
        assert both.energy_j == pytest.approx(whole, rel=off)


def test_throttling_and_peaks_inside_a_window_are_seen(gpus):
    with watching(gpus) as watch, process() as child:
        begin_ns = time.perf_counter_ns()
        gpus.set(throttle=0x20, temperature_c=91, sm_clock_mhz=600)
        gpus.hold(child.pid, 2044)
        seen(watch, lambda tick: tick[0].memory_used_mib > 2000)
        gpus.release(child.pid)
        gpus.set(throttle=0, temperature_c=70, sm_clock_mhz=1980)
        seen(watch, lambda tick: tick[0].reasons == ())
        use = watch.between(begin_ns, time.perf_counter_ns())
        after = window(watch, 100)
    assert (use.memory_used_gib, use.temperature_c, use.sm_clock_min_mhz) == (2.0, 91, 600)
    assert 0 < use.throttled_share < 1
    assert use.reasons == (Throttle.SW_THERMAL,)
    assert (after.throttled_share, after.temperature_c, after.sm_clock_mhz) == (0, 70, 1980)


def test_a_repeat_gets_what_the_gpus_did_in_its_window_or_why_not(gpus):
    with watching(gpus) as watch:
        now_ns = time.perf_counter_ns()
        known = watch.metered(replace(run(), window=Window(now_ns, now_ns + 800 * MS)))
        early = watch.metered(replace(run(), window=Window(now_ns - 3600 * 1000 * MS, now_ns)))
        assert watch.metered(replace(run(), window=None)) == replace(run(), window=None)
    assert known.gpu.energy_j == pytest.approx(80, rel=0.15)
    assert known.gpu_missing == ""
    assert (early.gpu, early.gpu_missing) == (None, "the GPU meter did not sample over the whole window")


def test_a_window_on_the_clock_of_another_machine_is_laid_on_this_ones(gpus):
    ahead_ns = 86_400_000 * MS
    route = NetworkRoute("load-1", "10.0.0.9", "gpu-1", "10.0.0.5", clock_ahead_ns=ahead_ns)
    with watching(gpus) as watch:
        now_ns = time.perf_counter_ns()
        here = watch.metered(replace(run(), window=Window(now_ns, now_ns + 800 * MS)))
        there = Window(now_ns + ahead_ns, now_ns + ahead_ns + 800 * MS)
        away = watch.metered(replace(run(), window=there, route=route))
    assert away.gpu == here.gpu
    assert here.gpu is not None
    assert away.window == there


def test_a_node_without_a_driver_has_nothing_and_says_so(gpus):
    (gpus.folder / "state.json").unlink()
    with watching(gpus) as watch:
        assert watch._process.wait(10) == 0
        assert (watch.gpus, watch.driver, watch.now(), watch.foreign()) == ((), None, None, ())
        assert "NVML Shared Library Not Found" in watch.missing()
        assert watch.metered(run()).gpu_missing == watch.missing()
        watch.wait_released(watch.now(), 10)
        pid = watch._process.pid
        watch.start()
        assert watch._process.pid == pid  # there is nothing to start again for


def test_the_real_library_loads_where_there_may_be_no_driver():
    argv = [sys.executable, "-m", "ddtree_tune.node.gpu_meter"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as meter:
        first = json.loads(meter.stdout.readline())
        meter.stdin.close()
        assert meter.wait(10) == 0
    assert first.get("absent") or first["gpus"]


def test_the_fake_library_has_the_names_and_arguments_of_the_real_one():
    names = [name for name in vars(fake_nvml) if name.lower().startswith("nvml")]
    assert len(names) > 12
    for name in names:
        ours, theirs = getattr(fake_nvml, name), getattr(pynvml, name)
        if inspect.isfunction(ours):
            assert len(inspect.signature(ours).parameters) == len(inspect.signature(theirs).parameters)
        elif inspect.isclass(ours):
            assert issubclass(theirs, pynvml.NVMLError)
        else:
            assert ours == theirs


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2, 0", [2, 0]),
        ("GPU-b", [1]),
        ("GPU-c,GPU-a", [2, 0]),
        ("1,-1,2", [1]),
        ("0,7,1", [0]),
        ("MIG-a", []),
        ("1,1", [1]),
    ],
)
def test_gpus_are_chosen_as_cuda_chooses_them(wanted, expected):
    assert visible(["GPU-a1", "GPU-b2", "GPU-c3"], wanted) == expected


def test_only_the_gpus_that_the_server_may_use_are_metered(gpus):
    gpus.set(count=4)
    with watching(gpus, CUDA_VISIBLE_DEVICES="2,GPU-fake-1") as watch:
        assert [gpu.index for gpu in watch.gpus] == [2, 1]
        assert [one.gpu for one in watch.now()] == [2, 1]
    with watching(gpus, CUDA_VISIBLE_DEVICES="") as watch:
        assert watch.missing() == "CUDA_VISIBLE_DEVICES= names no GPU"


def test_a_call_that_hangs_is_silence_and_holds_nobody_up(gpus):
    with watching(gpus) as watch:
        pid = watch._process.pid
        gpus.set(hang=True)
        assert window(watch) is None
        soon(lambda: watch.now() is None)
        assert "NVML hangs" in watch.missing()
    assert ended(pid)


def test_a_gpu_that_is_lost_is_silent_about_everything(gpus):
    gpus.hold(os.getpid(), 1000)
    with watching(gpus) as watch:
        baseline = watch.now()
        gpus.set(lost=True)
        seen(watch, lambda tick: tick[0].energy_mj is None)
        (sample,) = watch.now()
        assert (sample.power_w, sample.memory_used_mib, sample.reasons, sample.pids) == (None, None, None, None)
        use = window(watch, 100)
        assert (use.energy_j, use.memory_used_gib, use.throttled_share) == (None, None, None)
        with pytest.raises(EngineError, match="GPU 0 no longer saying what it holds"):
            watch.wait_released(baseline, 0.2)


def test_a_meter_that_is_killed_leaves_a_gap_and_is_replaced(gpus):
    with watching(gpus) as watch:
        begin_ns = time.perf_counter_ns()
        os.kill(watch._process.pid, signal.SIGKILL)
        cell = watch.metered(replace(run(), window=Window(begin_ns, begin_ns + 500 * MS)))
        assert (cell.gpu, cell.gpu_missing) == (None, "the GPU meter has ended with exit code -9")
        watch.start()
        assert watch.missing() == ""
        assert window(watch, 800).energy_j == pytest.approx(80, rel=0.15)


@pytest.mark.parametrize("hang", [False, True])
def test_the_meter_ends_when_its_owner_is_killed(gpus, hang):
    env = os.environ | gpus.env
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    with owner:
        pid = int(owner.stdout.readline())
        assert not ended(pid)
        gpus.set(hang=hang)
        owner.kill()
        soon(lambda: ended(pid))


def test_memory_that_comes_back_is_waited_for(gpus):
    with watching(gpus) as watch:
        baseline = watch.now()
        with process() as child:
            gpus.hold(child.pid, 100_000, linger_s=0.3)
            seen(watch, lambda tick: tick[0].pids == (child.pid,))
        watch.wait_released(baseline, 30)
        assert watch.now()[0].memory_used_mib == baseline[0].memory_used_mib
        gpus.hold(os.getpid(), 512)
        watch.wait_released(baseline, 30)  # as much as a driver's own bookkeeping may take


@pytest.mark.parametrize("lives", [True, False])
def test_memory_that_does_not_come_back_dirties_the_node(gpus, lives):
    gpus.set(count=2)
    with watching(gpus) as watch, process() as child:
        baseline = watch.now()
        gpus.hold(child.pid, 4100, gpu=1, linger_s=None)
        seen(watch, lambda tick: tick[1].pids == (child.pid,))
        if not lives:
            child.kill()
            child.wait()
            seen(watch, lambda tick: tick[1].pids == ())
        with pytest.raises(EngineError) as caught:
            watch.wait_released(baseline, 0.2)
    assert caught.value.failure is FailureClass.DIRTY_NODE
    who = str(child.pid) if lives else "no process that is known"
    assert f"4100 MiB more on GPU 1, held by {who}, 0.2 s after" in str(caught.value)


def test_silence_is_no_answer_to_whether_memory_is_back(gpus):
    with watching(gpus) as watch:
        baseline = watch.now()
        os.kill(watch._process.pid, signal.SIGKILL)
        watch._process.wait()
        watch.wait_released(baseline, 30)  # a meter that has died is replaced
        gpus.set(hang=True)
        with pytest.raises(EngineError, match="no sample") as caught:
            watch.wait_released(baseline, 0.2)
    assert caught.value.failure is FailureClass.DIRTY_NODE


def test_a_node_is_no_dirtier_for_an_nvml_that_takes_longer_than_the_period(gpus):
    gpus.set(count=8, delay_s=0.01)  # a sample of all of them takes half a second
    with watching(gpus) as watch:
        watch.refuse_taken()
        watch.refuse_taken()
        assert len(watch.now()) == 8


def test_foreign_processes_are_told_from_our_own(gpus):
    with watching(gpus) as watch, process() as child:
        assert watch.foreign() == ()
        gpus.hold(child.pid, 10)
        seen(watch, lambda tick: tick[0].pids)
        (found,) = watch.foreign({os.getpid()})
        assert (found.gpu, found.pid) == (0, child.pid)
        assert str(found) == f"process {child.pid} ({psutil.Process(child.pid).name()}) on GPU 0"
        assert watch.foreign({child.pid}) == ()


def test_a_process_of_another_namespace_is_judged_by_memory(gpus):
    stranger = 2**22 + 17  # above the kernel's largest process id
    with watching(gpus) as watch:
        gpus.hold(stranger, 100, host=True)
        seen(watch, lambda tick: tick[0].pids == (stranger,))
        assert watch.foreign() == ()
        gpus.hold(stranger, 5000, host=True)
        seen(watch, lambda tick: tick[0].memory_used_mib > 5000)
        (found,) = watch.foreign()
        assert (found.pid, found.name) == (stranger, None)
        assert str(found) == f"process {stranger} (of another container) on GPU 0"
        assert watch.foreign({os.getpid()}) == ()  # it may well be our own
