"""What rounding to bfloat16 does to the check's questions: ``python -m benchmarks.sglang bfloat16``.

The reference is float32 and SGLang serves the pair in bfloat16. Here the built-in engine decodes for
real, and what SGLang holds in bfloat16 is rounded to it: norms, projections, the residual stream and
logits. Sums stay float32, as in a GPU's kernels. No kernel rounds in quite this order, so texts
differ from SGLang's as its own differ between batch sizes; pooled, acceptance compares.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from benchmarks.sglang.prompts import CHECK, CHECK_TOKENS, read
from ddtree_tune.builtin import layers, models
from ddtree_tune.builtin.buffers import Projection
from ddtree_tune.builtin.decoder import Decoder, Part, Stream
from ddtree_tune.builtin.layers import Stack
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.builtin.sampling import Sampler, Sampling
from ddtree_tune.builtin.speculation import Speculation
from ddtree_tune.builtin.weights import load_drafter, load_target
from ddtree_tune.core.engine import Algorithm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from benchmarks.sglang.prompts import Prompt

SETTINGS = ("4/2", "15/1", "16/4", "64/8")
_LONGEST = 1024
_CHUNK = 256


def compare() -> Iterator[str]:
    """Tokens per step of every setting in float32 and in bfloat16, and how many texts are the same."""
    prompts = [prompt for prompt in read(file=CHECK) if prompt.reply]
    tokens = sum(len(prompt.reply) for prompt in prompts)
    for setting in SETTINGS:
        exact = tokens / sum(prompt.steps[setting] for prompt in prompts)
        with rounding():
            replies, steps = decode(setting, prompts)
        same = sum(one == prompt.reply for one, prompt in zip(replies, prompts, strict=True))
        seen = sum(map(len, replies)) / steps
        yield f"{setting}: {exact:.3f} in float32, {seen:.3f} rounded; {same} of {len(prompts)} texts are equal"


def decode(setting: str, prompts: list[Prompt]) -> tuple[list[list[int]], int]:
    """Greedy replies to all prompts, and the verify steps that they took."""
    budget, topk = map(int, setting.split("/"))
    algorithm = Algorithm.CHAIN if topk == 1 else Algorithm.TREE
    target = load_target(PAIR / "target")
    drafter = load_drafter(PAIR / "draft", target)
    speculation = Speculation.resolve(algorithm, budget, topk, None, drafter.config.block_size)
    decoder = Decoder(target, drafter, speculation, slots=1, length=_LONGEST, chunk=_CHUNK)
    replies, steps = [], 0
    for prompt in prompts:
        stream = Stream(0, Sampler(Sampling(max_tokens=1, temperature=0.0)), target.stop_ids)
        decoder.read([Part(stream, prompt.ids, last=True)])
        reply = [stream.anchor]
        while len(reply) < CHECK_TOKENS and reply[-1] not in stream.stop_ids:
            reply += decoder.step([stream])[0].tokens
            steps += 1
        replies.append(reply[:CHECK_TOKENS])
    return replies, steps


def rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """To the nearest bfloat16, ties to even, in place."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    values[...] = bits.view(np.float32)
    return values


@contextmanager
def rounding() -> Iterator[None]:
    """The built-in engine rounds."""
    normalise, project, multiply = layers.normalise, vars(Stack)["_project"], Projection.__call__

    def rounded_norm(x: Any, epsilon: Any, squares: Any, out: Any) -> None:
        normalise(x, epsilon, squares, out)
        rounded(out)

    def rounded_project(self: Stack, index: int, x: Any, rows: Any) -> None:
        project(self, index, x, rows)
        rounded(rows.qkv)

    def rounded_product(self: Projection, rows: Any, count: int) -> Any:
        return rounded(multiply(self, rows, count))

    def rounded_residual(name: str) -> Callable[..., None]:
        part = vars(Stack)[name]

        def run(self: Stack, index: int, x: Any, *others: Any) -> None:
            part(self, index, x, *others)
            rounded(x)

        return run

    with ExitStack() as stack:
        for owner, name, new in (
            (layers, "normalise", rounded_norm),
            (models, "normalise", rounded_norm),
            (Projection, "__call__", rounded_product),
            (Stack, "_project", rounded_project),
            (Stack, "_attend", rounded_residual("_attend")),
            (Stack, "_transform", rounded_residual("_transform")),
        ):
            stack.enter_context(patch.object(owner, name, new))
        yield
