"""What the command refuses or foretells before it starts anything."""

from pathlib import Path

import pytest

from ddtree_tune.run import main
from tests.cluster.tiny import TINY_SWEEP, command


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
    done = command("ddtree_tune.cli", "plan", str(Path(__file__).parents[1] / "search_spaces/laptop.yaml"))
    assert done.returncode == 0, done.stderr
    assert "12 trials: 2 baselines, 5 seeds, 5 by surrogate" in done.stdout
