"""One whole sweep as a user starts it: the command, the built-in engine, Ray, the files and the answer."""

import json

import pytest

from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.node.store import Store
from tests.cluster.tiny import TINY_SWEEP, command

pytestmark = pytest.mark.ray


@pytest.mark.timeout(300)
def test_a_sweep_measures_every_setting_answers_and_leaves_its_files(embedded_sweep):
    done, folder = embedded_sweep
    store = Store(str(folder))
    records = store.read_records(raw=True)
    searched = [record for record in records if record.proposal.origin is not Origin.FINAL]
    # A baseline that a busy machine spoiled is measured again.
    labels = list(dict.fromkeys(record.config.label for record in searched))
    assert labels == ["no speculation", "chain", "8/4/none"]
    assert {record.status for record in records} == {TrialStatus.COMPLETE}
    finals = {(record.config, record.proposal.round) for record in records if record not in searched}
    assert len(finals) == 3
    for record in searched:
        assert [cell.metrics.concurrency for cell in record.cells] == [1, 2]
        assert all(cell.metrics.output_tps > 0 for cell in record.cells)
        assert all(abs(cell.metrics.prompt_tokens_mean - 60) <= 8 for cell in record.cells)
        assert [attempt.concurrency for attempt in record.attempts] == [2, 1]
        assert record.pass_rate.attempted == 1
        assert record.effective.max_running_requests == 2
        assert record.plan.served_model_name.startswith(f"trial-{record.trial_id}")
        assert "fired up and ready to roll" in record.log or (folder / "logs" / record.trial_id / "server.log").exists()
    speculating = [record for record in records if record.config.algorithm != "none"]
    assert all(cell.metrics.accept_len > 1.5 for record in speculating for cell in record.cells)
    assert all(cell.metrics.accept_len is None for cell in records[0].cells)
    assert all(record.gate.lossless for record in records if record.proposal.reference is not None)
    assert store.read_spec() == TINY_SWEEP
    assert (folder / "fingerprint.json").exists()
    assert "x no speculation" in done.stdout
    assert str(folder) in done.stdout

    again = command("ddtree_tune.cli", "resume", str(folder), "--json")
    assert again.returncode == 0, again.stderr
    events = [json.loads(line) for line in again.stdout.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["begun", "answer"]
    assert len(events[-1]["trials"]) == len(records)
    assert len(store.read_records()) == len(records)  # nothing was missing, nothing ran twice
