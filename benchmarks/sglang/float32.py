"""Judges replies by the target in float32, on the CPU: what the server's own prefill, in bfloat16, cannot settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.sglang.prompts import MAX_TOKENS
from benchmarks.sglang.rows import CLOSE, Score
from ddtree_tune.builtin.buffers import Span
from ddtree_tune.builtin.layers import causal_mask
from ddtree_tune.builtin.models import Limits, Target
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.builtin.weights import load_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from benchmarks.sglang.prompts import Prompt
    from benchmarks.sglang.rows import Reply


def scores(prompts: Sequence[Prompt], replies: Iterable[Reply]) -> dict[str, Score]:
    """Read every text once.

    Args:
        prompts: all of them.
        replies: any.

    Returns:
        The score of each by its key.
    """
    distinct = {reply.key: reply for reply in replies}
    length = max(len(prompt.ids) for prompt in prompts) + MAX_TOKENS
    target = Target(load_target(PAIR / "target"), Limits(slots=1, length=length, chunk=length, width=length))
    causal = causal_mask(length)
    return {key: _score(target, causal, prompts[reply.index].ids, reply) for key, reply in distinct.items()}


def _score(target: Target, causal: NDArray[np.float32], prompt: list[int], reply: Reply) -> Score:
    tokens = np.array([*prompt, *reply.ids])[:-1]  # what follows the last one is not asked
    count = len(tokens)
    span = Span(0, 0, count, 0, mask=causal[:count, :, :count])
    hidden, _ = target.forward(tokens, np.arange(count), [span])
    logits = target.logits(hidden[len(prompt) - 1 :])
    behind = logits.max(axis=1) - logits[np.arange(len(reply.ids)), reply.ids]
    two = np.partition(logits, -2, axis=1)[:, -2:]
    return Score(
        reply.gpu,
        reply.key,
        reply.index,
        [[at, float(behind[at])] for at in np.flatnonzero(behind > 0).tolist()],
        [[at, float(gap)] for at, gap in enumerate(two[:, 1] - two[:, 0]) if gap < CLOSE],
    )
