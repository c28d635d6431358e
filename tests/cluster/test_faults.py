"""One sweep to which everything happens: it loses nothing, counts nothing twice, and its folder is whole."""

import contextlib
import re
import resource

import psutil
import pyarrow.parquet as pq
import pytest

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.node.store import Store
from ddtree_tune.node.unfinished import REASON
from tests.cluster.driven import Driven, alive, engine_of, halted, titles
from tests.cluster.machines import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SPEC = """
name: battered
space: {budget: [8], topk: [4], window: [none]}
load: {contexts: [60], concurrency: [1, 2], output_tokens: 32, window_s: 0.7}
coding: {problems: five_kinds, limit: 1, max_tokens: 400, concurrency: 1}
search: {trials: 3, max_failures: 4, final: {settings: 0, rounds: 0}}
"""
ENGINE = r"\S+ -m ddtree_tune\.builtin "
SETTINGS = {"no speculation", "chain", "8/4/none"}


def kept(folder):
    """Every table of every trial that ended: its bytes and when they were written."""
    ended = [one.trial_id for one in Store(str(folder)).read_records() if one.measured or one.failure]
    files = [file for file in folder.rglob("*.parquet") if file.stem in ended]
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


class Story:
    """What happened, for the tests to look at."""

    def __init__(self, home, machines):
        self.machines = machines
        self.spec = home / "spec.yaml"
        self.spec.write_text(SPEC)
        self.results = home / "results"
        self.runs = []
        self.kept = []
        """What was kept whenever a driver ended."""
        self.orphans = []
        """Processes of the driver that was killed."""
        self.engines = []
        """How many engines there were whenever a trial passed its gate."""
        self.engine = None
        """The process of the last one."""

    @property
    def folder(self):
        """Of the results."""
        (found,) = self.results.iterdir()
        return found

    def run(self, *argv, machines=None):
        """Start a driver."""
        driven = Driven(*argv, machines=machines)
        self.runs.append(driven)
        return driven

    def resume(self, machines=None):
        """Start a driver that goes on."""
        self.kept.append(kept(self.folder))
        return self.run("ddtree_tune.cli", "resume", self.folder, machines=machines)

    def gated(self, driven, label, tries):
        """Wait until a setting passes its gate for the so manyth time; the number of that trial."""
        trial = driven.says(rf"\] (\d+) {label} \| gate passed", tries).group(1)
        with halted(driven.process):  # the trial is a step further at most when they are found
            processes = driven.processes()
            self.engines.append(len([name for _, name in titles(processes) if re.match(ENGINE, name)]))
            self.engine = engine_of(processes, trial)
        return trial

    @contextlib.contextmanager
    def working(self, driven):
        """The worker that measures or grades: it waits for the engine, which stands still here."""
        with halted(self.engine):
            yield driven.worker("Worker.run")


@pytest.fixture(scope="module")
def story(machines, tmp_path_factory):
    """The sweep: five of its processes are killed, then its driver; its disk is full, its folder vanishes.

    All but the driver that is killed belong to a cluster of one node: it is there at once, a Ray of their own is not.
    """
    told = Story(tmp_path_factory.mktemp("battered"), machines)
    machines.leave()
    machines.join()
    wait_for(lambda: machines.up() == 1)
    try:
        lose_processes(told)
        lose_the_driver(told)
        fill_the_disk(told)
        lose_the_folder(told)
        last = told.resume(machines)
        assert last.ends() == 0, last.text
        yield told
    finally:
        for one in told.runs:
            one.close()


def lose_processes(story):
    """Each dies in the middle of a cell, or of the coding evaluation."""
    first = story.run("ddtree_tune.run", story.spec, "--results", story.results, machines=story.machines)
    trial = story.gated(first, "no speculation", 1)
    with story.working(first) as worker:
        worker.kill()
    first.says(rf" {trial} .*failed in load: load: the load actor is gone")
    trial = story.gated(first, "no speculation", 2)
    with story.working(first):
        first.worker("ServeReplica:engine").kill()
    first.says(rf" {trial} .*failed in load: node_lost: the engine's replica")
    assert engine_of(first.processes(), trial) is None
    story.gated(first, "no speculation", 3)
    first.worker("Store").kill()
    trial = story.gated(first, "chain", 1)
    first.says(rf" {trial} .* c2: ")
    with story.working(first) as worker:
        worker.kill()
    first.says(rf" {trial} .*failed in coding: grade: the grading actor is gone")
    trial = story.gated(first, "chain", 2)
    with story.working(first):
        first.worker("TuneTrial.train").kill()
    first.says(rf" {trial} .*: node_lost: the trial's process must live until its end, but it is gone: ActorDiedError")
    assert first.ends() == 1, first.text


def lose_the_driver(story):
    """It is killed with the Ray that it started, and nobody is left to say why its trial ended."""
    second = story.resume()
    trial = story.gated(second, "chain", 1)
    second.says(rf" {trial} .* c1: ")
    with story.working(second):
        story.orphans = second.processes()
        second.kill()
    wait_for(lambda: engine_of(alive(story.orphans), trial) is None, 30)


def fill_the_disk(story):
    """A limit of the process that writes: it fails in the middle of a file, as on a full disk."""
    third = story.resume(story.machines)
    story.gated(third, "chain", 1)
    third.worker("Store").rlimit(psutil.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))
    assert third.ends() == 1, third.text


def lose_the_folder(story):
    """It is moved, as a share that is unmounted."""
    fourth = story.resume(story.machines)
    story.gated(fourth, "chain", 1)
    where = story.folder
    where.rename(story.spec.parent / "elsewhere")
    assert fourth.ends() == 1, fourth.text
    assert not where.exists()
    (story.spec.parent / "elsewhere").rename(where)


def of(story, label):
    """What a setting left, in the order of asking."""
    return [one for one in Store(str(story.folder)).read_records(raw=True) if one.config.label == label]


def test_each_fault_is_a_row_of_the_trial_that_it_hit(story):
    load, replica, *_ = of(story, "no speculation")
    assert [one.failure.failure for one in (load, replica)] == [FailureClass.LOAD, FailureClass.NODE_LOST]
    grading, process, driver, *_ = of(story, "chain")
    assert grading.failure.failure is FailureClass.GRADE
    assert [len(cell.runs) for cell in grading.cells] == [1, 1]
    assert process.failure.failure is FailureClass.NODE_LOST
    assert process.seconds > 1
    # The cell after whose end it was killed is there, and the next if it was quick.
    assert (driver.failure.failure, driver.failure.reason) == (FailureClass.INTERRUPTED, REASON)
    assert [one.metrics.concurrency for one in driver.cells] in ([1], [1, 2])
    assert {one.status for one in (load, replica, grading, process, driver)} == {TrialStatus.FAILED}


def test_every_setting_is_measured_as_often_as_it_should_be(story):
    for label in SETTINGS:
        whole = [one for one in of(story, label) if one.status is TrialStatus.COMPLETE]
        assert whole, label
        # A cell that a busy machine spoiled is measured once more; nothing else is.
        assert len(whole) == 1 or any(cell.metrics.flags for cell in whole[0].cells)
        for one in whole:
            assert [cell.metrics.concurrency for cell in one.cells] == [1, 2]
            assert all(cell.metrics.output_tps > 0 and cell.runs[0].traces for cell in one.cells)
            assert one.pass_rate.attempted == 1
    records = Store(str(story.folder)).read_records()
    assert {one.config.label for one in records} == SETTINGS
    assert len({one.trial_id.partition("-")[0] for one in records}) == len(records)


def test_lost_trials_do_not_count_and_too_many_of_them_end_the_sweep(story):
    first, *_, last = story.runs
    assert len(re.findall(r"failed in \w+: ", first.text)) == 4
    go_on = f"Once that is mended, go on with: ddtree-tune resume {story.folder}"
    assert (
        "Given up: 4 trials were lost to failures that are not the configuration's (search.max_failures: 4). " + go_on
    ) in first.text
    records = Store(str(story.folder)).read_records()
    assert sum(one.status is TrialStatus.FAILED for one in records) >= 5
    assert {one.config.label for one in records if one.measured} == SETTINGS  # search.trials: 3
    assert "[3/3]" in last.text


def test_what_was_kept_is_never_written_again(story):
    now = kept(story.folder)
    assert [len(then) > 0 for then in story.kept] == [True] * 4
    for then in story.kept:
        assert then.items() <= now.items()


def test_the_store_may_die_and_its_next_record_is_kept(story):
    assert any(one.status is TrialStatus.COMPLETE for one in of(story, "no speculation")[2:])


def test_a_sweep_that_cannot_keep_its_records_ends_with_one_sentence(story):
    _, _, full, gone, _ = story.runs
    go_on = f"What is complete is kept; go on with: ddtree-tune resume {story.folder}\n"
    assert re.search(rf"\ncannot write {story.folder}/\S+: .*File too large.*\. {go_on}", full.text)
    assert f"\n{story.folder} must still hold its sweep's fingerprint.json, but got none" in gone.text
    for run in (full, gone):
        assert run.text.count(go_on) == 1
        assert run.text.endswith(go_on)
        assert "Traceback" not in run.text


def test_the_folder_is_whole(story):
    files = [file for file in story.folder.rglob("*") if file.is_file()]
    assert not [file for file in files if file.name.startswith(".")]
    tables = [file for file in files if file.suffix == ".parquet"]
    assert all(set(pq.read_table(file)["trial_id"].to_pylist()) <= {file.stem} for file in tables)
    assert {one.name for one in story.folder.iterdir()} == {
        "sweep.yaml", "fingerprint.json", "winner.sh", "winner.yaml", "report.html",
        "trials", "cells", "requests", "attempts", "logs", "tune",
    }  # fmt: skip


def test_nothing_of_a_killed_driver_is_left(story):
    wait_for(lambda: not alive(story.orphans), 60)


def test_two_engines_never_shared_the_node(story):
    assert set(story.engines) == {1}
