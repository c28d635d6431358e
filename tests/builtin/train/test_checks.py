"""What the evaluation's processes do: replies against tests, and replay against real decoding."""

import random

import numpy as np
import pytest

from ddtree_tune.builtin.train.checks import BUDGETS, TOPKS, Drafts, passes, replay
from ddtree_tune.builtin.train.tasks import draw_task
from ddtree_tune.core.tree import build_tree, walk


@pytest.fixture
def task():
    return draw_task(random.Random(1), "held_out", "rle")


def answer(code):
    return f"<think>\nplan\n</think>\nHere:\n\n```python\n{code}\n```\n"


def test_a_worked_reply_passes(task):
    assert passes(task, task.reply)


def test_a_program_in_the_thinking_does_not_count(task):
    assert not passes(task, f"<think>\n```python\n{task.code}\n```\n</think>\nDone.")


@pytest.mark.parametrize(
    "body", ["return []", "while True: pass", "import os", "raise KeyError(1)", "return open('x')", "("]
)
def test_a_program_that_is_wrong_endless_or_wants_files_fails(task, body):
    assert not passes(task, answer(f"def {task.function}(*given):\n    {body}"))


def drafts(seed, length=60, depth=7, vocabulary=11):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, (length, depth, vocabulary))
    reply = rng.integers(0, vocabulary, length + 1).tolist()
    for at in range(length):  # the truth is likely, and less so the further ahead
        for ahead, token in enumerate(reply[at + 1 : at + 1 + depth]):
            scores[at, ahead, token] += 3 - ahead / 3
    log_probs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    order = np.argsort(-log_probs, axis=-1)[..., : TOPKS[-1]]
    return Drafts(reply, np.take_along_axis(log_probs, order, -1).astype(np.float32), order)


def decode(drafts, topk, budget):
    """Run the verify steps one after the other, with a tree of that budget at each."""
    at = steps = 0
    end = len(drafts.reply) - 1
    while at < end:
        tree = build_tree(drafts.log_probs[at, :, :topk].tolist(), budget)
        tokens = [
            int(drafts.tokens[at, depth - 1, rank]) for depth, rank in zip(tree.depths_N, tree.ranks_N, strict=True)
        ]
        # The target follows the reply on the true path; elsewhere its choice is never looked at.
        choices = [
            drafts.reply[min(at + 1 + depth, end)] if at + 1 + depth <= end else -1 for depth in (0, *tree.depths_N)
        ]
        at = min(end, at + len(walk(tree, tokens, choices)))
        steps += 1
    return end, steps


@pytest.mark.parametrize("seed", range(3))
def test_replay_equals_decoding_with_every_budget_and_topk(seed):
    one = drafts(seed)
    results = replay(one)
    assert set(results) == {(topk, budget) for topk in TOPKS for budget in BUDGETS}
    for (topk, budget), found in results.items():
        assert found == decode(one, topk, budget)
    lengths = [results[4, budget][0] / results[4, budget][1] for budget in BUDGETS]
    assert lengths[-1] > lengths[0] > 1
