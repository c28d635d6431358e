"""``ray job submit`` to a cluster of a head and nodes that come, stay and go; the built-in engine."""

import contextlib
import itertools
import json
import re
import threading
import zipfile
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

import ddtree_tune
from ddtree_tune.cluster.gauges import GAUGES
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.node.store import Store
from ddtree_tune.run import main
from tests.cluster.driven import halted, halted_trial, titles
from tests.cluster.machines import wait_for
from tests.cluster.tiny import TINY_SWEEP

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
STOPPABLE = json.dumps({"env_vars": {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "120"}})
GRAFANA = ROOT / "docs/grafana.json"
IMPATIENT = """
import sys
from pathlib import Path

from ddtree_tune import run
from ddtree_tune.arguments import guarded
from ddtree_tune.cluster import sweep

sweep.PATIENCE = sweep.Patience(say_s=1, repeat_s=2, limit_s=6)
sys.exit(guarded(lambda: run.start(Path(sys.argv[1]), Path(sys.argv[2]), quiet=False)))
"""


class Job:
    """A submitted job, followed as a user does and, seconds sooner, where Ray keeps its log."""

    def __init__(self, machines, name, *entrypoint):
        self.lines = []
        self.metrics = ""
        self._log = machines.folder / f"session_latest/logs/job-driver-{name}.log"
        self._following = machines.ray(
            "job", "submit", "--working-dir", str(ROOT), "--runtime-env-json", STOPPABLE, "--submission-id", name,
            "--", *entrypoint,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        self.lines.extend(iter(self._following.stdout.readline, ""))

    def says(self, words, after="", limit_s=180):
        """Wait for a line of the job, after the first one with other words."""

        def found():
            going = self._reader.is_alive()
            lines = self._log.read_text().splitlines() if self._log.exists() else []
            later = itertools.dropwhile(lambda line: after not in line, lines)
            line = next((line for line in later if words in line), None)
            assert line or going, f"the job ended and did not say {words!r}: {''.join(self.lines)}"
            return line

        return wait_for(found, limit_s)

    def ends(self, limit_s=200):
        """Wait for the end; the exit code of ``ray job submit``."""
        code = self._following.wait(limit_s)
        self._reader.join(10)
        return code


def schemas(folder):
    """The columns of each table of a sweep, with their units and meanings."""
    return {
        table: {str(pq.read_schema(file)) for file in (folder / table).glob("*.parquet")}
        for table in ("trials", "cells", "requests", "attempts")
    }


def files(folder):
    """What lies in a results folder whatever its answer is."""
    return {one.name for one in folder.iterdir()} - {"winner.sh", "winner.yaml"}


def measured(folder):
    """What a sweep measured, finals aside, whatever the figures: setting, origin, status, cells and coding."""
    records = Store(str(folder)).read_records(raw=True)
    return {
        (
            record.config,
            record.proposal.origin,
            record.status,
            tuple(cell.metrics.cell_id for cell in record.cells),
            len(record.attempts),
        )
        for record in records
        if record.proposal.origin is not Origin.FINAL
    }


def engines(machines):
    """Processes of the built-in engine below the cluster's."""
    found = []
    for process in machines.processes():
        with contextlib.suppress(psutil.Error):
            if "ddtree_tune.builtin" in process.cmdline():
                found.append(process)
    return found


def driver(machines):
    """The process of the only job that runs."""
    found = [one for one, name in titles(machines.processes()) if re.match(r"\S*python\S* -m ddtree_tune\.run ", name)]
    (process,) = found
    return process


def counted(metrics, complete):
    """What is exported once all complete trials are counted, which comes with a delay."""
    last = re.search(rf'^ray_ddtree_tune_trials\{{.*status="complete".*\}} {complete}\.0$', metrics, re.MULTILINE)
    return metrics if last else None


def complete_in(folder):
    """Records of the trials that are complete."""
    return [one for one in Store(str(folder)).read_records() if one.status is TrialStatus.COMPLETE]


def spec_file(folder):
    """The tiny sweep without finals: which settings they are of is up to the figures."""
    text = TINY_SWEEP.replace("final: {settings: 1, rounds: 1}", "final: {settings: 0, rounds: 0}")
    assert text != TINY_SWEEP
    (folder / "sweep.yaml").write_text(text)
    return str(folder / "sweep.yaml")


@pytest.fixture(scope="module")
def lonely(machines, tmp_path_factory):
    """The same as a job whose patience ends before there is a node; it runs beside the other one."""
    machines.leave()
    home = tmp_path_factory.mktemp("lonely")
    script = home / "impatient.py"
    script.write_text(IMPATIENT)
    return Job(machines, "lonely", "python", str(script), spec_file(home), str(home / "results")), home / "results"


@pytest.fixture(scope="module")
def submitted(machines, lonely, tmp_path_factory):
    """The tiny sweep as a job that finds no node, gets one, and then a second one."""
    home = tmp_path_factory.mktemp("submitted")
    job = Job(machines, "tiny", "python", "-m", "ddtree_tune.run", spec_file(home), "--results", str(home / "results"))
    job.says("0 nodes up")
    lonely[0].says("a trial must get a node")
    machines.join()
    job.says("1 node up")
    job.says("1.00 x no speculation")  # the base of every gain is measured alone: two engines share few cores here
    with halted_trial(driver(machines), machines):  # a node takes as long to come as the next trials to end
        machines.join()
        job.says("2 nodes up")
        job.says("| starting", after="2 nodes up")
    job.says("Trials: budget/topk/window")
    (folder,) = (home / "results").iterdir()
    complete = len(complete_in(folder))
    # Ray forgets them 20 seconds after they were set.
    job.metrics = wait_for(lambda: counted(machines.metrics(), complete))
    code = job.ends()
    assert code == 0, "".join(job.lines)
    return job, folder


def test_a_submitted_sweep_measures_what_an_embedded_one_does(submitted, embedded_sweep):
    _, folder = submitted
    _, embedded = embedded_sweep
    assert measured(folder) == measured(embedded)
    assert len(measured(folder)) == 3
    assert schemas(folder) == schemas(embedded)
    assert all(len(found) == 1 for found in schemas(folder).values())
    assert files(folder) == files(embedded)
    for one in (folder, embedded):  # on a machine this busy a sweep may end without an answer
        assert (one / "winner.sh").exists() == (one / "winner.yaml").exists()
        assert (one / "winner.sh").exists() == (ddtree_tune.load(one).conclusion().best is not None)


def test_nodes_that_join_later_are_used_and_each_holds_one_trial(submitted):
    records = Store(str(submitted[1])).read_records()
    assert len({record.node for record in records}) == 2
    for node in {record.node for record in records}:
        held = sorted(
            (start := datetime.fromisoformat(record.started_utc), start + timedelta(seconds=record.seconds))
            for record in records
            if record.node == node
        )
        # Starts are kept in whole seconds.
        assert all(start >= end - timedelta(seconds=1) for (_, end), (start, _) in itertools.pairwise(held))


def test_the_log_of_a_job_is_one_line_per_event_with_an_end_time(submitted):
    lines = [line.rstrip("\n") for line in submitted[0].lines]
    events = [line for line in lines if re.match(r"\[\d/3\] ", line)]
    assert len(events) > 3 * 4
    assert all(re.search(r"ends about \d\d:\d\d \(\d+ (s|min)\)$", line) for line in events), events
    assert not any("\x1b[" in line for line in events)
    assert not any("Traceback" in line or "pid=" in line for line in lines)


def test_every_metric_of_the_dashboard_is_exported_and_only_what_is_known(submitted):
    wanted = set(re.findall(r"ray_ddtree_tune_\w+", GRAFANA.read_text()))
    assert wanted == {f"ray_ddtree_tune_{name}" for name in GAUGES}
    text = submitted[0].metrics
    samples = re.findall(r"^(ray_ddtree_tune_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE)
    assert {name for name, _, _ in samples} == wanted

    def values(name, *tags):
        return [float(value) for one, of, value in samples if one == name and all(tag in of for tag in tags)]

    assert values("ray_ddtree_tune_trials", 'status="complete"', 'sweep="tiny"') == [len(complete_in(submitted[1]))]
    assert all(value > 1 for value in values("ray_ddtree_tune_accept_len"))
    assert not values("ray_ddtree_tune_accept_len", 'setting="no speculation"')
    assert len(values("ray_ddtree_tune_output_tps", 'setting="chain"', 'concurrency="c2"')) >= 1
    assert all(value > 0 for value in values("ray_ddtree_tune_node_seconds"))
    assert {0 <= value <= 1 for value in values("ray_ddtree_tune_pass_rate")} == {True}


def test_a_stopped_job_leaves_no_server_no_half_file_and_what_was_done(submitted, machines, tmp_path):
    job = Job(
        machines, "stopped", "python", "-m", "ddtree_tune.run", spec_file(tmp_path), "--results", str(tmp_path / "r")
    )
    job.says("i60 c1")
    with halted(driver(machines)):  # or a trial may have ended before it is stopped
        assert engines(machines)
        alive = [actor for actor in machines.listed("actors") if actor["state"] == "ALIVE"]
        assert "TuneTrial" in {actor["class_name"] for actor in alive}
        assert {"load", "lease", "store"} <= {actor["name"].partition("-")[0] for actor in alive}
        assert machines.stop("stopped")
    job.ends()
    assert not engines(machines)
    (folder,) = (tmp_path / "r").iterdir()
    kept = [file for file in folder.rglob("*") if file.is_file()]
    assert all(pq.read_metadata(file).num_rows >= 0 for file in kept if file.suffix == ".parquet")
    assert {file.suffix for file in kept} <= {".parquet", ".yaml", ".json", ".log", ".html", ".pkl"}
    (record, *_) = Store(str(folder)).read_records()
    assert record.failure.failure is FailureClass.INTERRUPTED
    assert "ddtree-tune resume" in "".join(job.lines)


def test_a_sweep_that_has_no_nodes_says_so_and_ends(lonely, submitted):
    job, results = lonely
    assert job.ends() == 1
    text = "".join(job.lines)
    assert re.search(r"waiting for \d+ s: no node that offers sweep_node: 1 is up; the sweep ends after 0.1 min", text)
    (folder,) = results.iterdir()
    assert (
        "a trial must get a node within 0.1 min, but got none: no node that offers sweep_node: 1 is up. "
        f"What is complete is kept; go on with: ddtree-tune resume {folder}"
    ) in text


def test_a_relative_results_folder_is_refused_where_it_would_be_deleted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")  # what Ray gives to the entrypoint of a job
    assert main([spec_file(tmp_path)]) == 2
    assert "--results must be an absolute path in a submitted job, but got results" in capsys.readouterr().err


def test_an_upload_is_the_package_and_the_specs(tmp_path):
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import create_package

    package = tmp_path / "upload.zip"
    create_package(str(ROOT), package, include_gitignore=True, excludes=get_runtime_env_default_excludes())
    names = zipfile.ZipFile(package).namelist()
    assert {name.partition("/")[0] for name in names} <= {
        "ddtree_tune", "search_spaces", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "cluster.yaml",
        "cluster_local.yaml", ".gitignore", ".rayignore",
    }  # fmt: skip
    assert "ddtree_tune/builtin/pair/target/model.safetensors" in names
    assert package.stat().st_size < 10 * 2**20
