"""Scores a pair: pass rates by context length, and acceptance lengths by exact replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own spelling

from ddtree_tune.builtin.train.chat import END_ID
from ddtree_tune.builtin.train.checks import BUDGETS, TOPKS, Drafts, passes, replay
from ddtree_tune.builtin.train.decode import Limits, greedy
from ddtree_tune.builtin.train.loops import Reply

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

    from ddtree_tune.builtin.train.data import Sampler
    from ddtree_tune.builtin.train.model import Drafter, Target
    from ddtree_tune.builtin.train.tasks import Task

ANCHORS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Exam:
    """Held-out tasks and the target's replies."""

    tasks: list[Task]
    replies: list[Reply]
    scores: dict[str, Any]


def examine(target: Target, drawn: list[tuple[Task, list[int]]], sampler: Sampler, pool: Pool, limits: Limits) -> Exam:
    """Let the target answer held-out tasks and run its programs."""
    answered = greedy(target, [prompt for _, prompt in drawn], limits)
    tasks = [task for task, _ in drawn]
    replies = [Reply(prompt, tokens or [END_ID]) for (_, prompt), tokens in zip(drawn, answered, strict=True)]
    texts = [
        sampler.tokenizer.decode([token for token in reply.tokens if token != END_ID], skip_special_tokens=False)
        for reply in replies
    ]
    passed = pool.starmap(passes, zip(tasks, texts, strict=True), chunksize=4)
    asked = Counter(task.family for task in tasks)
    failed = Counter(task.family for task, good in zip(tasks, passed, strict=True) if not good)
    wrong = [(task, text) for task, text, good in zip(tasks, texts, passed, strict=True) if not good]
    scores = {
        "asked": len(drawn),
        "passed": sum(passed),
        "ended": sum(reply.tokens[-1] == END_ID for reply in replies),
        "prompt_tokens_mean": round(float(np.mean([len(reply.prompt) for reply in replies])), 1),
        "reply_tokens_mean": round(float(np.mean([len(reply.tokens) for reply in replies])), 1),
        "failed_families": {name: f"{failed[name]}/{asked[name]}" for name in sorted(failed)},
        "failures": [{"prompt": task.prompt, "reply": text} for task, text in wrong[:3]],
    }
    return Exam(tasks, replies, scores)


def drafts_of(target: Target, drafter: Drafter, reply: Reply, block: int, window: int | None) -> Drafts:
    """Draft at every token of a reply but the last."""
    device = target.lm_head.weight.device
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        ids = torch.tensor([[*reply.prompt, *reply.tokens]], device=device)
        taps = target(ids, layers=max(target.shape.taps) + 1).taps
        for at in torch.arange(len(reply.prompt), len(reply) - 1, device=device).split(ANCHORS_AT_ONCE):
            seen = None if window is None else torch.full((1, len(at)), window, device=device)
            hidden = drafter(taps[:, : int(at[-1])], target.embed(ids[0, at])[None], at[None], block, seen)
            scores = F.linear(hidden[0, :, 1:], target.lm_head.weight)
            best = scores.topk(TOPKS[-1], -1)
            found.append((best.values - scores.logsumexp(-1, keepdim=True), best.indices))
    return Drafts(
        list(reply.tokens),
        torch.cat([one for one, _ in found]).float().cpu().numpy(),
        torch.cat([one for _, one in found]).cpu().numpy(),
    )


def acceptance(
    target: Target, drafter: Drafter, pool: Pool, replies: list[Reply], *, block: int, window: int | None
) -> dict[str, Any]:
    """Replay replies at every topk and budget.

    Returns:
        Under "chain" the plain DFlash acceptance length, under "topk_K" one per budget (pooled
        over the replies: tokens over verify steps), and under "hits" the share of right best
        candidates per position of the block.
    """
    drafts = [drafts_of(target, drafter, reply, block, window) for reply in replies if len(reply.tokens) > 1]
    results = pool.map(replay, drafts, chunksize=1)
    pooled = {
        key: round(sum(one[key][0] for one in results) / sum(one[key][1] for one in results), 3) for key in results[0]
    }
    hits, seen = np.zeros(block - 1), np.zeros(block - 1)
    for one in drafts:
        reply = np.array(one.reply)
        for at in range(min(block - 1, len(reply) - 1)):
            wanted = reply[1 + at :]
            hits[at] += (one.tokens[: len(wanted), at, 0] == wanted).sum()
            seen[at] += len(wanted)
    table = {f"topk_{topk}": {budget: pooled[topk, budget] for budget in BUDGETS} for topk in TOPKS}
    return {
        "replies": len(drafts),
        "block": block,
        "window": window,
        "chain": pooled[1, BUDGETS[-1]],
        **table,
        "hits": (hits / np.maximum(seen, 1)).round(3).tolist(),
    }
