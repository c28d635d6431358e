"""Several load processes that share a cell: one window, one load, nothing left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from ddtree_tune.core import timing
from ddtree_tune.core.errors import EngineError, FailureClass, LoadError
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase
from ddtree_tune.core.workload import OpenLoop
from ddtree_tune.node.crew import run_crew
from ddtree_tune.node.lag import PERIOD_NS
from tests.truth.harness import assert_real, cell, job, most_at_once, running, tokens_sent_inside

ROOT = Path(__file__).parents[2]


def members_of(pid):
    """Load processes below a process; one that has ended is none."""
    found = []
    for one in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie is one, too
            found += [one] if "ddtree_tune.node.member" in one.cmdline() else []
    return found


def gone(processes, within_s=10.0):
    """Whether all of them end."""
    return not psutil.wait_procs(processes, timeout=within_s)[1]


@pytest.fixture(scope="module")
def shared(truth_process):
    """One cell by three processes, and what the server did meanwhile."""
    truth_process.script(jitter=0.5, gap_s=0.05, ttft_s=0.03)
    run = run_crew(job(truth_process, cell(8, output=24, window_s=1.5)), 3)
    return run, tokens_sent_inside(truth_process, run.window), most_at_once(truth_process)


def test_a_crew_holds_the_same_load_as_one_process(shared):
    run, sent_inside, most = shared
    assert_real(run)
    metrics = measure([run])
    assert most <= 8
    assert metrics.in_flight_mean == pytest.approx(8, rel=0.02)
    _, level = timing.levels([(trace.sent_ns, trace.end_ns) for trace in run.traces], run.window)
    assert level.max() == 8
    assert metrics.output_tokens == pytest.approx(sent_inside, rel=0.03)
    assert metrics.requests_failed == 0
    assert "short" not in metrics.flags


def test_a_crews_traces_are_one_cells(shared):
    run, *_ = shared
    assert [trace.sent_ns for trace in run.traces] == sorted(trace.sent_ns for trace in run.traces)
    for name in ("request_id", "prompt_sha"):
        assert len({getattr(trace, name) for trace in run.traces}) == len(run.traces) > 16
    assert {int(trace.request_id.rpartition("-")[2]) % 3 for trace in run.traces} == {0, 1, 2}
    ticks = run.window.seconds * 1e9 / PERIOD_NS
    assert len(run.lag_ns) == pytest.approx(3 * ticks, abs=3)
    assert len(run.prompts_sha) == 64


def test_a_crew_staggers_its_slots_as_one_process_does(shared):
    run, *_ = shared
    warm = [trace.completion_tokens for trace in run.traces if trace.phase is Phase.WARMUP and trace.ok]
    assert sorted(warm)[:7] == [3, 6, 9, 12, 15, 18, 21]


def test_how_many_processes_hardly_changes_what_is_sent(truth, shared):
    run, *_ = shared
    truth.script(jitter=0.5, gap_s=0.05, ttft_s=0.03)
    alone = run_crew(job(truth, run.cell), 1)
    assert_real(alone)
    one, three = ({t.prompt_sha for t in each.traces if t.phase is Phase.WINDOW} for each in (alone, run))
    assert len(one & three) >= 0.75 * max(len(one), len(three))
    assert {t.prompt_sha for t in alone.traces if t.phase is Phase.WARMUP} & {t.prompt_sha for t in run.traces}


def test_a_crew_shares_the_arrivals_of_an_open_loop(truth):
    shape = cell(arrival=OpenLoop(40.0), output=8, window_s=1.0)
    alone, crew = run_crew(job(truth, shape), 1), run_crew(job(truth, shape), 3)
    sent = [np.array([trace.sent_ns for trace in run.traces]) / 1e9 for run in (alone, crew)]
    size = min(map(len, sent))
    assert size > 25
    since = [times[:size] - times[0] for times in sent]
    assert np.median(np.abs(since[0] - since[1])) < 0.01  # the same instants, whoever sends
    assert {int(trace.request_id.rpartition("-")[2]) % 3 for trace in crew.traces} == {0, 1, 2}
    assert measure([crew]).requests_failed == 0


def test_a_hang_ends_a_crew_with_its_class(truth):
    truth.script(fault="stall")
    with pytest.raises(EngineError, match="a token must come within") as caught:
        run_crew(job(truth, cell(4, window_s=20.0)), 2)
    assert caught.value.failure is FailureClass.HANG
    assert not members_of(os.getpid())


def test_what_a_member_cannot_do_is_the_crews_error(truth):
    with pytest.raises(LoadError, match="a prompt"):
        run_crew(job(truth, cell(4, context=5)), 2)
    assert not members_of(os.getpid())


def test_a_server_that_dies_in_the_middle_leaves_what_a_crew_had_measured():
    with running() as server:
        server.script(gap_s=0.05)
        with server.killed_after(streams=40):
            run = run_crew(job(server, cell(6, window_s=30.0)), 2)
    assert run.window is not None
    done = [trace for trace in run.traces if trace.ok and trace.phase is Phase.WINDOW]
    assert len(done) >= 6
    metrics = measure([run])
    assert metrics.requests_failed >= 6
    assert {"failures", "short"} <= set(metrics.flags)
    assert not metrics.scored


DRIVER = """
import pickle, sys
from ddtree_tune.node.crew import run_crew
job = pickle.load(sys.stdin.buffer)
run_crew(job, 2)
"""


@pytest.fixture
def driver(truth):
    """A process that drives a crew through a long cell, and its two members."""
    import pickle

    truth.script(gap_s=0.02)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        process.stdin.write(pickle.dumps(job(truth, cell(4, window_s=60.0))))
        process.stdin.close()
        try:
            while not truth.truth():  # they are at work
                assert process.poll() is None
                time.sleep(0.05)
            yield process, members_of(process.pid)
        finally:
            process.kill()


def test_a_member_that_dies_ends_the_cell_and_takes_the_others_along(driver):
    process, members = driver
    assert len(members) == 2
    members[0].kill()
    assert process.wait(20) == 1
    assert b"a load process must live until its cell is over, but got exit code -9" in process.stderr.read()
    assert gone(members)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_members_die_with_their_parent(driver, how):
    process, members = driver
    assert len(members) == 2
    process.send_signal(how)
    process.wait(20)
    assert gone(members)


def test_ctrl_c_leaves_nothing_behind(driver):
    process, members = driver
    assert len(members) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    assert process.wait(20) in {1, 130, -signal.SIGINT}
    printed = process.stderr.read()
    assert b"KeyboardInterrupt" in printed
    assert printed.count(b"Traceback") == 1  # the members say nothing
    assert gone(members)


def test_a_member_needs_neither_ray_nor_optuna():
    code = (
        "import sys, ddtree_tune.node.member, ddtree_tune.node.loadgen;"
        "print(sorted({'ray', 'optuna', 'pyarrow', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
