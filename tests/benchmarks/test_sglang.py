"""The benchmark of SGLang against a fake one: every part runs, and its tables say what the rows hold."""

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from benchmarks.sglang import report
from benchmarks.sglang.bfloat16 import rounded
from benchmarks.sglang.check import chi_square, refused
from benchmarks.sglang.float32 import scores
from benchmarks.sglang.lossless import judge
from benchmarks.sglang.prompts import CHECK, CHECK_TOKENS, FILE, read
from benchmarks.sglang.rows import (
    Compared,
    Constrained,
    Drawn,
    Failed,
    Kept,
    Machine,
    Refused,
    Reply,
    Rows,
    Score,
    Served,
    Speed,
    Steps,
    reply_key,
)  # fmt: skip
from benchmarks.sglang.serving import PLUGINS, plugin_folder
from benchmarks.sglang.settings import CHAIN, NONE, TIMED, TREES, deal
from benchmarks.sglang.steps import read_steps
from ddtree_tune.core.errors import EngineError
from tests.sglang.harness import QUICK, ROOT, scenario


def reply(setting, ids, *, mode="alone", index=0, place=0, verify_steps=None):
    return Reply(setting, 0, mode, 0, index, place, 5, 0, ids, verify_steps, None)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(lines, heading):
    """The rows of one table by the column's name."""
    at = next(at for at, line in enumerate(lines) if heading in line)
    end = next((at for at, line in enumerate(lines[at + 1 :], at + 1) if line.startswith("\n###")), len(lines))
    rows = [line for line in lines[at:end] if line.startswith("|")]
    return [dict(zip(cells(rows[0]), cells(row), strict=True)) for row in rows[2:]]


@pytest.mark.timeout(200)  # about ten seconds of CPU: four servers, a load process and the harness start
def test_every_part_runs_on_a_machine_with_two_baselines_and_a_timed_tree(tmp_path):
    argv = "--budget-s 150 --trees 0 --timed 1 --refused 1 --prompts 2 --bursts 1 --rounds 1 --window-s 0.2"
    argv += " --concurrencies 2"
    command = [sys.executable, "-m", "benchmarks.sglang", "run", "--out", str(tmp_path / "out"), *argv.split()]
    environment = os.environ | scenario(tmp_path, **(QUICK | {"build": "ddtree_tune"}))
    command += ["--command", "python -m tests.sglang.fake"]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kept = Kept.read([tmp_path / "out" / "rows.jsonl"])
    assert not kept.of(Failed), kept.of(Failed)
    served = kept.of(Served)
    assert {one.setting: one.differs for one in served} == {"none": [], "chain": [], "16/4 timed": []}
    assert not [one for one in served if one.error]
    modes = {(one.setting, one.mode) for one in kept.of(Reply)}
    assert modes == {(name, mode) for name in ("none", "chain") for mode in ("alone", "crowd", "burst")}
    assert {one.key for one in kept.of(Score)} == {one.key for one in kept.of(Reply)}
    assert {one.setting for one in kept.of(Speed)} == {"none", "chain", "16/4 timed"}
    assert all(one.metrics["output_tps"] > 0 for one in kept.of(Speed))
    assert 2 in {one.batch for one in kept.of(Steps)}
    compared = {(one.setting, one.mode): one for one in kept.of(Compared)}
    assert set(compared) == {("none", mode) for mode in ("crowd", "long")} | {
        ("chain", mode) for mode in ("alone", "crowd", "long", "mixed")
    }
    assert not any(one.differences for one in compared.values())
    assert compared["chain", "alone"].tokens_per_step > 1 > (compared["none", "crowd"].tokens_per_step or 0)
    assert compared["chain", "long"].cached[1] > 2000
    assert [(one.setting, one.draws) for one in kept.of(Drawn)] == [("chain", 4)]  # the fake knows no n
    assert {one.setting for one in kept.of(Constrained)} == {"none", "chain"}
    assert [one.error for one in kept.of(Refused)] == [None]  # and refuses no budget
    lines = list(report.lines(kept))
    assert table(lines, "### What must not start")[0]["last line"] == "it served"
    assert {row["equal"] for row in table(lines, "by the prefill")} == {"2 of 2"}
    assert len(table(lines, "### 2 at once")) == 2
    logs = subprocess.run(["tar", "tzf", tmp_path / "out" / "logs.tar.gz"], capture_output=True, text=True, check=True)
    assert len(logs.stdout.split()) == 4


def test_a_token_that_rounding_does_not_explain_is_named():
    plain, near, far = [7, 8, 9], [7, 8, 6], [7, 5, 9]
    said = [reply("none", plain), reply("chain", near), reply("chain", far, place=3)]
    scored = [
        Score(0, reply_key(0, plain), 0, [[1, 0.02]], []),
        Score(0, reply_key(0, near), 0, [[2, 0.01]], []),
        Score(0, reply_key(0, far), 0, [[1, 0.5]], []),
    ]
    lines = list(report.lines(Kept([[*said, *scored]])))
    chain = next(row for row in table(lines, "by the prefill") if row["setting"] == "chain")
    assert chain["equal"] == "0 of 2"
    assert (chain["largest gap at a first difference"], chain["furthest"]) == ("0.5000", "0.5000")
    assert (chain["beyond rounding"], chain["in replies at place"]) == ("1", "3: 1")
    assert [
        line for line in lines if line.startswith("- 0.5000 nats behind: chain, alone 0, place 3, prompt 0, token 1")
    ]


def test_acceptance_is_compared_with_the_replay_of_the_same_prompts():
    prompt = read(1)[0]
    same = reply("16/4", prompt.reply, mode="crowd", verify_steps=prompt.steps["16/4"])
    other = reply("chain", prompt.reply[:101], mode="crowd", verify_steps=50)
    tree, chain = sorted(
        table(list(report.lines(Kept([[same, other]]))), "### Acceptance"), key=lambda row: row["setting"]
    )
    assert (tree["setting"], tree["ratio"], tree["replies that are equal"]) == ("16/4", "1.000", "1 of 1")
    whole = (len(prompt.reply) - 1) / prompt.steps["15/1"]
    assert (chain["tokens per step"], chain["reference"]) == ("2.000", f"{whole:.3f}")
    assert chain["replies that are equal"] == "0 of 1"


def test_a_prefill_is_read_from_its_end_and_must_be_of_the_reply():
    top = [None, [[-0.5, 4, None], [-1.5, 9, None]], [[-0.2, 6, None], [-0.4, 5, None]]]
    meta = {"input_token_logprobs": [[None, 3, None], [-0.5, 4, None], [-0.4, 5, None]], "input_top_logprobs": top}
    score = judge(0, reply("chain", [4, 5]), meta)
    assert score.behind == [[1, pytest.approx(0.2)]]
    assert score.margins == [[1, pytest.approx(0.2)]]
    with pytest.raises(EngineError, match="must end with the 2 tokens"):
        judge(0, reply("chain", [4, 6]), meta)


def test_the_reference_says_nothing_but_the_likeliest_in_float32_and_another_token_is_behind():
    prompts = read(2)
    replies = [reply("none", prompt.reply, index=at) for at, prompt in enumerate(prompts)]
    other = reply("chain", [*prompts[0].reply[:20], prompts[0].reply[20] + 1, *prompts[0].reply[21:40]])
    scored = scores(prompts, [*replies, other])
    # Another order of float32 sums may turn a tie.
    assert all(nats < 1e-3 for one in replies for _, nats in scored[one.key].behind)
    assert any(position == 20 and nats > 0.1 for position, nats in scored[other.key].behind)


def test_a_cut_line_of_rows_is_left_out(tmp_path):
    path = tmp_path / "rows.jsonl"
    Rows(path).add(reply("none", [1, 2]))
    with path.open("a") as file:
        file.write('{"kind": "reply", "setting": "no')
    assert [one.ids for one in Kept.read([path]).of(Reply)] == [[1, 2]]


def test_steps_are_medians_by_batch_apart_from_eager_ones_and_few_are_none(tmp_path):
    path = tmp_path / "steps.jsonl"
    step = {"batch": 8, "graphs": True, "draft_ms": 1.0, "tree_ms": 0.1, "verify_ms": 2.0, "commit_ms": None}
    lines = [json.dumps(step | {"draft_ms": at}) for at in range(21)]
    lines += [json.dumps(step | {"graphs": False, "draft_ms": 50.0})] * 20
    path.write_text("\n".join([*lines, json.dumps(step | {"batch": 7}), '{"batch": 8, "dra']))
    eager, graphed = read_steps(path, "8/4", 0)
    assert (graphed.batch, graphed.graphs, graphed.steps) == (8, True, 21)
    assert (graphed.draft_ms, graphed.verify_ms, graphed.commit_ms) == (10, 2.0, None)
    assert (eager.batch, eager.graphs, eager.steps, eager.draft_ms) == (8, False, 20, 50)


def test_settings_are_dealt_to_all_gpus_with_the_baselines_on_each():
    hands = deal(2, (*TREES[:5], *TIMED[:1]))
    assert [hand[:2] for hand in hands] == [[NONE, CHAIN]] * 2
    dealt = [setting for hand in hands for setting in hand[2:]]
    assert len(dealt) == len({setting.name for setting in dealt}) == 6
    assert set(TREES[:5]) < set(dealt)


def test_the_reference_is_of_long_replies_and_prompts_that_differ():
    prompts = read()
    assert len({prompt.text for prompt in prompts}) == len(prompts) >= 50
    assert min(len(prompt.reply) for prompt in prompts) >= 128
    for prompt in prompts:
        assert prompt.steps["64/8"] < prompt.steps["8/1"] < len(prompt.reply)


def test_a_plugin_that_is_not_installed_is_announced_in_a_folder(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", f"from importlib import metadata; print(metadata.entry_points(group={PLUGINS!r}))"],
        env=os.environ | {"PYTHONPATH": str(plugin_folder(tmp_path))}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert ("ddtree_tune" in found.stdout) == (PLUGINS in pyproject)


def test_chi_square_of_equal_samples_is_nothing_and_of_unlike_ones_much():
    one = Counter({(1, 2, 3): 60, (1, 2, 4): 40, (9, 9, 9): 1})
    assert chi_square(one, one) == (2, 0.0)
    cells, distance = chi_square(one, Counter({(1, 2, 3): 40, (1, 2, 4): 60, (8, 8, 8): 1}))
    assert (cells, distance) == (2, pytest.approx(8.0))


def test_what_a_refused_server_said_last_is_its_error():
    log = "the server ended\nTraceback\nValueError: first\nValueError: budget must be 1\n[17:05:00] bye"
    assert refused(Served("bad", 0, None, [], None, [], log)).error == "ValueError: budget must be 1"


def test_rounding_is_bfloat16s():
    values = np.array([1.0, 1.00390625, 1.01171875, -3.14159], np.float32)  # the middle two are halfway
    assert rounded(values).tolist() == [1.0, 1.0, 1.015625, -3.140625]


def test_the_kept_figures_are_of_an_h200_and_make_every_table_of_the_page():
    kept = Kept.read(sorted(FILE.parent.glob("h200_*.jsonl.zst")))
    assert {machine.gpu for machine in kept.of(Machine)} == {"NVIDIA H200, 580.159.04; NVIDIA H200, 580.159.04"}
    assert len(kept.by_pair()) == 2
    page = (FILE.parent / "README.md").read_text()
    rows = [line for line in report.lines(kept) if line.startswith("|")]
    assert len(rows) > 200
    assert [row for row in rows if row not in page] == []


def test_short_questions_have_a_reference_and_the_long_prompt_has_two_chunks():
    *questions, long = read(file=CHECK)
    assert len(questions) == 50
    assert {len(prompt.reply) for prompt in questions} == {CHECK_TOKENS}
    assert len(long.ids) > 2 * 1024
