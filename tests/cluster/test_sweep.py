"""One whole sweep as a user starts it: the command, the built-in engine, Ray, the files and the answer."""

import json
from pathlib import Path

import pytest

from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.node.store import Store
from ddtree_tune.run import main
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


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("ddtree_tune.run", "missing.yaml"), "missing.yaml: the spec must be a readable YAML file"),
        (("ddtree_tune.cli", "plan", "missing.yaml"), "missing.yaml: the spec must be"),
        (("ddtree_tune.run",), "required: spec"),
        (("ddtree_tune.cli", "resume", "nowhere"), "nowhere"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(argv, words):
    done = command(*argv)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("found", "instead", "sentence"),
    [
        ("problems: five_kinds", "problems: no_such_set", "no_such_set.jsonl: a problem set must be a file"),
        ("window_s: 0.5", "window_s: 0.5, prompts: /nowhere.jsonl", "load.prompts: cannot read the prompts"),
    ],
)
def test_files_that_a_spec_names_are_read_before_anything_starts(tmp_path, capsys, found, instead, sentence):
    (tmp_path / "s.yaml").write_text(TINY_SWEEP.replace(found, instead))
    assert main([str(tmp_path / "s.yaml"), "--results", str(tmp_path / "results")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_plan_counts_trials_and_touches_no_node(tmp_path):
    done = command("ddtree_tune.cli", "plan", str(Path(__file__).parents[2] / "search_spaces/laptop.yaml"))
    assert done.returncode == 0, done.stderr
    assert "12 trials: 2 baselines, 5 seeds, 5 by surrogate" in done.stdout
