"""``ddtree-tune replay``: from a file to a table, to JSON, or to one sentence and exit code 2."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from ddtree_tune.cli import main
from ddtree_tune.core.replay import replay
from ddtree_tune.node.replay_file import load_trace, write_trace

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/replay"
KEPT = GOLDEN / "drafts.jsonl.gz"


def test_the_kept_trace_replays_to_what_the_engine_counted():
    trace = load_trace(KEPT)
    measured = json.loads((GOLDEN / "measured.json").read_text())
    assert len(measured["settings"]) > 3
    for setting in measured["settings"]:
        found = replay(trace, (setting["budget"],), (setting["topk"],))
        assert found.histograms[:, 0, 0].tolist() == setting["histograms"]


def test_the_example_of_the_page_is_a_trace(tmp_path, capsys):
    page = (ROOT / "docs/replay.md").read_text()
    example = tmp_path / "example.jsonl"
    example.write_text(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    assert replay(load_trace(example), (1, 3), (1, 2)).committed[0].tolist() == [[2, 2], [2, 3]]
    assert main(["replay", str(example)]) == 0
    assert "1 requests, 2 positions" in capsys.readouterr().out


def test_the_command_prints_a_table_and_writes_json(tmp_path, capsys):
    out = tmp_path / "plane.json"
    assert main(["replay", str(KEPT), "--budgets", "4,16", "--topks", "1,4", "--json", str(out)]) == 0
    (part,) = json.loads(out.read_text())["contexts"]
    shown = capsys.readouterr().out
    assert f"{part['accept_len'][1][1]:.2f} ±" in shown
    np.testing.assert_allclose(part["accept_len"], replay(load_trace(KEPT), (4, 16), (1, 4)).accept_len)


def test_a_trace_is_written_whole_and_packed_by_its_name(tmp_path):
    trace = load_trace(KEPT)
    for name in ("one.jsonl", "one.jsonl.gz"):
        write_trace(tmp_path / name, trace)
        np.testing.assert_array_equal(load_trace(tmp_path / name).requests[0].log_probs, trace.requests[0].log_probs)
    assert gzip.decompress((tmp_path / "one.jsonl.gz").read_bytes()) == (tmp_path / "one.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jsonl", "one.jsonl.gz"]


def test_with_the_trials_of_a_sweep_speed_is_foretold_too(tmp_path, capsys):
    out = tmp_path / "plane.json"
    arguments = ["--budgets", "10,16", "--topks", "1,4", "--results", str(ROOT / "tests/golden/results")]
    assert main(["replay", str(KEPT), *arguments, "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    rows = json.loads(out.read_text())["foretold"]
    assert len({row["cell_id"] for row in rows}) * 4 == len(rows) > 4
    assert all(row["output_tps"] > 0 and row["deviation"] > 0 for row in rows)
    assert any(row["measured_tps"] for row in rows)
    assert shown.count("foretold tok/s") == len(rows) // 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([str(KEPT), "--results", "nowhere"], "nowhere: must be the results folder of a sweep, but it holds no trial"),
        ([str(KEPT), "--json", "no/plane.json"], "no/plane.json: must be a file in a folder that exists, but this is"),
        (["no.jsonl"], "no.jsonl: a trace must be a file, but got No such file or directory"),
        ([str(GOLDEN / "measured.json")], "measured.json:1: "),
        ([str(KEPT), "--topks", "99"], "topks must be at most the 4 candidates that the trace keeps, but got 99"),
        (
            ["broken.gz"],
            "broken.gz: a trace must be JSON lines, with .gz behind its name packed, but got Not a gzipped",
        ),
    ],
)
def test_a_wrong_trace_ends_with_one_sentence(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    Path("broken.gz").write_text("{}")
    assert main(["replay", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_budget_must_be_a_number(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(KEPT), "--budgets", "4,x"])
    assert ended.value.code == 2
    assert "must be a whole number from 1, but got 'x'" in capsys.readouterr().err
