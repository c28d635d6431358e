"""Greedy replies of the target, many prompts at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ddtree_tune.builtin.train.chat import END_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.builtin.train.model import Target


@dataclass(frozen=True, slots=True)
class Limits:
    """How far replies go."""

    new_tokens: int = 450
    cache_tokens: int = 2**20
    """Tokens of all sequences of a batch together."""
    deadline: float | None = None
    """In `perf_counter` seconds; prompts not begun by then get no reply."""
    ignore_end: bool = False
    """Whether replies go on after their end, up to ``new_tokens``."""


def greedy(target: Target, prompts: Sequence[Sequence[int]], limits: Limits) -> list[list[int] | None]:
    """Continue each prompt with the most probable tokens, in fp32.

    Returns:
        Per prompt the reply with its end token, or None when the deadline came first or the model
        has no positions for it. A reply that does not end has ``new_tokens`` tokens.
    """
    fitting = [at for at, prompt in enumerate(prompts) if len(prompt) + limits.new_tokens <= target.shape.positions]
    order = sorted(fitting, key=lambda at: len(prompts[at]))
    replies: list[list[int] | None] = [None] * len(prompts)
    while order and (limits.deadline is None or time.perf_counter() < limits.deadline):
        count = 1
        while (
            count < len(order) and (count + 1) * (len(prompts[order[count]]) + limits.new_tokens) <= limits.cache_tokens
        ):
            count += 1
        chosen, order = order[:count], order[count:]
        for at, tokens in zip(chosen, _batch(target, [prompts[at] for at in chosen], limits), strict=True):
            replies[at] = tokens
    return replies


def _batch(target: Target, prompts: list[Sequence[int]], limits: Limits) -> list[list[int]]:
    shape, device = target.shape, target.lm_head.weight.device
    longest = max(map(len, prompts))
    padded = np.zeros((len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):
        padded[row, : len(prompt)] = prompt
    size = (len(prompts), shape.key_heads, longest + limits.new_tokens, shape.head)
    cache = [(torch.zeros(size, device=device), torch.zeros(size, device=device)) for _ in range(shape.layers)]
    with torch.no_grad():
        positions = torch.tensor([len(prompt) for prompt in prompts], device=device)
        last = target(torch.from_numpy(padded).to(device), cache).last
        current = target.logits(last[torch.arange(len(prompts), device=device), positions - 1]).argmax(-1)
        drawn, ended = [current], current == END_ID
        for step in range(limits.new_tokens - 1):
            current = target.step(current, positions, cache, longest + step + 1).argmax(-1)
            positions = positions + 1
            drawn.append(current)
            ended |= current == END_ID
            # Asking the device every step would make it wait for us.
            if step % 16 == 0 and not limits.ignore_end and bool(ended.all()):
                break
    rows: list[list[int]] = torch.stack(drawn, 1).tolist()
    if limits.ignore_end:
        return rows
    return [row[: row.index(END_ID) + 1] if END_ID in row else row for row in rows]
