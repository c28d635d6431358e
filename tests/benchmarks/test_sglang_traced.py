"""A server's own drafts, replayed: what trees take of a reply whose drafts are known."""

import json

import pytest

from benchmarks.sglang.__main__ import describe
from benchmarks.sglang.rows import Reply
from benchmarks.sglang.settings import TIMED, TREES, pick
from benchmarks.sglang.traced import replayed
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.core.draft_trace import read_trace


def test_trees_that_hold_the_second_candidate_take_fewer_steps():
    """Block of 3: the next token is always the first candidate, the one after it the second: 2 or 3 a step."""
    reply = [10, 11, 12, 13, 14, 15, 16]
    wrong = list(range(100, 106))
    candidates = [
        [[following, 90, *wrong], [91, then, *wrong]]
        for following, then in zip(reply[1:], [*reply[2:], 17], strict=True)
    ]
    header = {"format": "draft_trace", "version": 1, "target": "t", "drafter": "d", "block_size": 3, "window": None}
    line = {
        "request_id": "a",
        "prompt_tokens": 4,
        "reply_tokens": 7,
        "tokens": reply,
        "candidates": candidates,
        "log_probs": [[[-0.1, -3.0, *[-9.0] * 6], [-0.5, -1.0, *[-9.0] * 6]]] * 6,
    }
    drafts = read_trace([json.dumps(header | {"topk": 8, "dtype": "bfloat16"}), json.dumps(line)], "here")
    (row,) = replayed(drafts, [Reply("64/8 traced", 1, "crowd", 0, 5, 5, 4, 0, reply, 6, None)])
    assert (row.gpu, row.index, row.ids) == (1, 5, reply)
    assert row.steps["15/1"] == 3
    assert row.steps["4/2"] == row.steps["64/8"] == 2


def test_settings_are_asked_for_by_number_or_by_name():
    assert pick(TREES, "3") == TREES[:3]
    assert [one.name for one in pick(TREES, "64/8,4/2")] == ["64/8", "4/2"]
    assert [one.name for one in pick(TIMED, "64/4")] == ["64/4 timed"]
    with pytest.raises(ValueError, match=r"must be some of 16/4, .*, but got 16/3"):
        pick(TREES, "8/4,16/3")


def test_a_pair_is_told_by_its_folder_and_size(tmp_path):
    assert describe(PAIR, 1) == "shipped pair, 3.0 M parameters"
    target = tmp_path / "a-large-pair" / "target"
    target.mkdir(parents=True)
    for number in range(2):
        with (target / f"model-{number}.safetensors").open("wb") as file:
            file.truncate(7 * 10**8)
    assert describe(target.parent, 2) == "a large pair, 700.0 M parameters, each server on 2 GPUs"
