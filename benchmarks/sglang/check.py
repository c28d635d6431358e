"""What else a server must do with trees: short greedy texts, mixed batches, long prompts, sampling, grammars, refusals.

Everything is held against the server without speculation, which is asked first. Greedy texts are
compared by their first difference, and by how far the two tokens lie apart there in that server's
own prefill: bfloat16 logits of this size stand on a grid of 0.0625 and 0.125 nats.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from benchmarks.sglang.lossless import CROWD
from benchmarks.sglang.prompts import CHECK_TOKENS
from benchmarks.sglang.rows import Compared, Constrained, Drawn, Refused
from ddtree_tune.core.errors import first_of
from ddtree_tune.node.client import EngineClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.sglang.prompts import Prompt
    from benchmarks.sglang.rows import Served
    from benchmarks.sglang.serving import Server

    Replies = list[dict[str, Any]]

DIGITS = "[0-9]{3}"
DRAWN = 3
"""Prompt that is sampled, or the last one of fewer: its first tokens are not sure."""
DRAWS = (4, 250)
"""Requests, and replies of each."""
_SAMPLED = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 3, "n": DRAWS[1], "ignore_eos": True}
_FEWEST = 10
"""Times that a text must be seen, of both servers together, to be a cell of the chi-square."""
_ASK_S = 150.0
"""The first batch that mixes greedy and sampled requests builds kernels: 88 s with stock DFLASH on an H200."""


class Check:
    """Compares servers with one that does not speculate.

    Args:
        plain: the server without speculation.
        prompts: short ones, and a long one at the end.
    """

    def __init__(self, plain: Server, prompts: Sequence[Prompt]) -> None:
        self._plain = plain
        self._short, self._long = prompts[:-1], prompts[-1]
        self._drawn = self._short[: DRAWN + 1][-1]
        self._alone: Replies = []
        self._crowd: Replies = []
        self._twice: Replies = []
        self._draws: Counter[tuple[int, ...]] = Counter()

    def base(self) -> Iterator[Compared | Constrained]:
        """Ask the server without speculation; what it says 16 at once is compared with what it says alone."""
        self._alone, self._crowd = self._greedy(self._plain, 1), self._greedy(self._plain, CROWD)
        self._twice = self._asked_twice(self._plain)
        self._draws = _draws(self._plain, self._drawn)
        yield self._compared(self._plain, "crowd", self._short, self._alone, self._crowd)
        yield self._compared(self._plain, "long", [self._long] * 2, self._twice, self._twice)
        yield _constrained(self._plain, self._short[-1])

    def of(self, server: Server) -> Iterator[Compared | Drawn | Constrained]:
        """Ask another server the same."""
        yield self._compared(server, "alone", self._short, self._alone, self._greedy(server, 1))
        yield self._compared(server, "crowd", self._short, self._crowd, self._greedy(server, CROWD))
        yield self._compared(server, "long", [self._long] * 2, self._twice, self._asked_twice(server))
        half = self._short[:CROWD:2]
        yield self._compared(server, "mixed", half, self._crowd[:CROWD:2], self._mixed(server)[::2])
        draws = _draws(server, self._drawn)
        cells, distance = chi_square(self._draws, draws)
        yield Drawn(server.setting.name, server.where.gpu, draws.total(), cells, distance)
        yield _constrained(server, self._short[-1])

    def _greedy(self, server: Server, at_once: int) -> Replies:
        return _ask(server, [_body(prompt) for prompt in self._short], at_once)

    def _asked_twice(self, server: Server) -> Replies:
        return _ask(server, [_body(self._long)] * 2, 1)

    def _mixed(self, server: Server) -> Replies:
        prompts = self._short[:CROWD]
        return _ask(server, [_body(one, temperature=at % 2 * 0.8) for at, one in enumerate(prompts)], CROWD)

    def _compared(
        self, server: Server, mode: str, prompts: Sequence[Prompt], plain: Replies, seen: Replies
    ) -> Compared:
        differences: list[list[float | None]] = []
        for at, (prompt, one, other) in enumerate(zip(prompts, plain, seen, strict=True)):
            if one["output_ids"] != other["output_ids"]:
                differences.append([at, *self._gap(prompt, one["output_ids"], other["output_ids"])])
        steps = sum(reply["meta_info"].get("spec_verify_ct") or 0 for reply in seen)
        tokens = sum(len(reply["output_ids"]) for reply in seen)
        cached = [reply["meta_info"].get("cached_tokens") for reply in seen] if mode == "long" else None
        per_step = tokens / steps if steps else None
        return Compared(server.setting.name, server.where.gpu, mode, len(seen), per_step, differences, cached)

    def _gap(self, prompt: Prompt, one: list[int], other: list[int]) -> tuple[int, float | None]:
        """Position where two texts part, and how far the first one's token lies before the other's, in nats."""
        at = next(at for at, both in enumerate(zip_longest(one, other)) if both[0] != both[1])
        if at >= min(len(one), len(other)):
            return at, None  # one ends; what ends a reply is not among its tokens
        bodies = [
            {
                "input_ids": [*prompt.ids, *one[:at], token],
                "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
                "return_logprob": True,
                "logprob_start_len": len(prompt.ids) + at - 1,
            }
            for token in (one[at], other[at])
        ]
        first, second = (reply["meta_info"]["input_token_logprobs"][-1][0] for reply in _ask(self._plain, bodies, 1))
        return at, first - second


def chi_square(one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]) -> tuple[int, float]:
    """Cells, and the distance of two samples from a common distribution."""
    cells = [text for text in one.keys() | other.keys() if one[text] + other[text] >= _FEWEST]
    distance = 0.0
    for text in cells:
        for counts in (one, other):
            expected = (one[text] + other[text]) * counts.total() / (one.total() + other.total())
            distance += (counts[text] - expected) ** 2 / expected
    return len(cells), distance


def refused(served: Served) -> Refused:
    """What a server that must not start said last."""
    lines = re.findall(r"^\w*Error: .*$", served.error or "", re.MULTILINE)
    last = lines[-1] if lines else served.error
    return Refused(served.setting, served.gpu, last)


def _constrained(server: Server, prompt: Prompt) -> Constrained:
    (reply,) = _ask(server, [_body(prompt, max_new_tokens=12, regex=DIGITS)], 1)
    return Constrained(server.setting.name, server.where.gpu, DIGITS, reply["text"])


def _draws(server: Server, prompt: Prompt) -> Counter[tuple[int, ...]]:
    """The first tokens of sampled replies."""
    replies: list[Any] = _ask(server, [{"text": prompt.text, "sampling_params": _SAMPLED}] * DRAWS[0], 1)
    several = [one for reply in replies for one in (reply if isinstance(reply, list) else [reply])]
    return Counter(tuple(one["output_ids"][:3]) for one in several)


def _body(prompt: Prompt, **sampling: Any) -> dict[str, Any]:
    return {"text": prompt.text, "sampling_params": {"temperature": 0.0, "max_new_tokens": CHECK_TOKENS} | sampling}


def _ask(server: Server, bodies: Sequence[dict[str, Any]], at_once: int) -> Replies:
    """Answers in the order of the questions; the first of our errors where something broke."""

    async def asked() -> Replies:
        slots = asyncio.Semaphore(at_once)
        async with (
            EngineClient(server.endpoint, timeout_s=_ASK_S, stall_s=_ASK_S) as client,
            asyncio.TaskGroup() as group,
        ):

            async def one(body: dict[str, Any]) -> dict[str, Any]:
                async with slots:
                    reply: dict[str, Any] = await client.post_json("/generate", body)
                    return reply

            tasks = [group.create_task(one(body)) for body in bodies]
        return [task.result() for task in tasks]

    try:
        return asyncio.run(asked())
    except BaseExceptionGroup as errors:
        raise (first_of(errors) or errors) from None
