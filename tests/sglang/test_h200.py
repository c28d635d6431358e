"""What the product wrote on one H200 with stock SGLang 0.5.17 and the shipped pair, and what of it the fake repeats."""

import gzip
import shutil
from pathlib import Path

import pytest

import ddtree_tune
from ddtree_tune.cli import main
from ddtree_tune.core.dialects import overridden
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.trace import RequestError
from ddtree_tune.node.store import Store
from tests.sglang.harness import running

KEPT = Path(__file__).parents[1] / "golden" / "h200"


def records(part):
    """The trials of one results folder, their requests too where they are kept."""
    found = Store(str(KEPT / part)).read_records(raw=(KEPT / part / "requests").exists())
    assert found
    return found


def log(part, trial_id):
    """What the server wrote."""
    return gzip.decompress((KEPT / part / "logs" / trial_id / "server.log.gz").read_bytes()).decode()


@pytest.mark.parametrize("part", ["whole", "killed", "overridden", "sweep"])
def test_every_record_names_its_gpu_and_versions(part):
    for record in records(part):
        assert record.fingerprint.gpus == ("NVIDIA H200 143771 MiB",)
        assert record.fingerprint.driver == "580.159.04"
        packages = dict(record.fingerprint.packages)
        assert packages["sglang"] == "0.5.17"
        assert record.plan is None or record.plan.argv[:3] == ("python", "-m", "sglang.launch_server")


def test_a_whole_trial_passed_its_gate_and_measured_its_cells():
    plain, chain = records("whole")
    assert [plain.config.algorithm, chain.config.algorithm] == [Algorithm.NONE, Algorithm.CHAIN]
    for record in (plain, chain):
        assert record.status is TrialStatus.COMPLETE
        assert record.gate.failed is None
        assert [cell.metrics.context for cell in record.cells] == [60, 512]
        assert all(cell.metrics.output_tps > 1000 and not cell.metrics.flags for cell in record.cells)
        assert all(0.01 < cell.metrics.joules_per_token < 0.1 for cell in record.cells)
        assert record.graphs.graphed
        assert not record.graphs.eager
        assert record.pass_rate.passed == 20
        assert {span.stage for span in record.spans} == {"launch", "gate", "load", "coding", "stop"}
    assert chain.answer == plain.answer
    assert next(check.detail for check in chain.gate.checks if check.name == "lossless") == "equal to the baseline"
    assert all(3.5 < cell.metrics.accept_len < 4.5 for cell in chain.cells)


def test_a_server_killed_in_the_middle_of_a_cell_left_its_requests_and_a_sentence():
    (record,) = records("killed")
    assert record.status is TrialStatus.FAILED
    assert (record.failure.failure, record.failure.stage) == (FailureClass.CRASH_REQUEST, "load")
    assert record.failure.reason.startswith("the server ended with signal 9")
    (cell,) = record.cells
    assert cell.metrics.output_tps is None
    (run,) = cell.runs
    cut = [trace for trace in run.traces if trace.error]
    assert 1 <= len(cut) <= 8
    assert {trace.error for trace in cut} == {RequestError.CLOSED}
    assert any(trace.ok for trace in run.traces)
    assert "resource_tracker" in log("killed", record.trial_id).splitlines()[-2]


def test_a_flag_that_sglang_overrode_without_a_word_ended_the_trial_at_its_gate():
    (record,) = records("overridden")
    assert record.status is TrialStatus.REJECTED
    assert record.failure.failure is FailureClass.SILENT_OVERRIDE
    assert record.failure.reason == "effective: speculative_num_steps asked 3, server resolved 1"
    assert not record.cells


def test_the_fake_overrides_the_same_flag(tmp_path):
    (record,) = records("overridden")
    asked = record.plan.argv[record.plan.argv.index("--attention-backend=triton") :]
    with running(tmp_path, *asked) as server:
        assert overridden(("sglang", *asked), server.get("/server_info")) == record.differences


def test_a_sweep_with_the_plugin_passed_every_gate():
    found = [record for record in records("sweep") if record.failure is None]
    assert len(found) == 6
    trees = [record for record in found if record.config.algorithm is Algorithm.TREE]
    assert len(trees) == 4
    for record in found:
        assert record.status is TrialStatus.COMPLETE
        assert record.gate.failed is None
        assert record.pass_rate.passed == 20
    for record in trees:
        shape = (record.effective.budget, record.effective.topk, record.effective.window)
        assert shape == (record.config.budget, record.config.topk, record.config.window)
        assert all(cell.metrics.accept_len > 3.5 for cell in record.cells)
        assert "DDTREE first step: 1 requests, drafter in graph True" in log("sweep", record.trial_id)
    widest = {record.config.budget: record.cells[0].metrics.accept_len for record in trees if record.config.topk == 4}
    assert widest[8] < widest[16] < widest[32]


def test_a_sweep_of_a_gpu_has_its_report_and_its_tables(tmp_path, capsys):
    folder = tmp_path / "sweep"
    shutil.copytree(KEPT / "sweep", folder)
    assert main(["report", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "Run the plain chain: no tree is faster by more than 1 %" in said
    page = (folder / "report.html").read_text()
    assert "NVIDIA H200 143771 MiB" in page
    assert "Energy per output token" in page
    assert "--speculative-algorithm DFLASH" in (folder / "winner.sh").read_text()
    cells = ddtree_tune.load(folder).cells
    assert cells.num_rows == 18
    assert all(0 < joules < 1 for joules in cells["joules_per_token"].to_pylist())
