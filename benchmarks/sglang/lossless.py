"""Greedy replies of one server, and what the server without speculation thinks of each of their tokens.

A reply is judged twice: by its first difference from what no speculation says one request after the
other, and token by token: the server without speculation reads prompt and reply in one prefill and
says how far each token lies behind the likeliest. Its own replies, judged so, show how far rounding
alone goes; a token that lies further behind is an error.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.sglang.prompts import MAX_TOKENS
from benchmarks.sglang.rows import CLOSE, Reply, Score
from ddtree_tune.core.errors import EngineError, first_of
from ddtree_tune.node.client import EngineClient

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from benchmarks.sglang.prompts import Prompt
    from benchmarks.sglang.serving import Server
    from ddtree_tune.core.engine import Endpoint

CROWD = 16
TOP = 8
"""Candidates that are asked for at each position."""
_ASK_S = 60.0


@dataclass(frozen=True, slots=True)
class Pass:
    """One time that prompts are asked."""

    mode: str
    """See `Reply`."""
    turn: int
    first: int = 0
    """Index of the first prompt."""


def ask(server: Server, prompts: Sequence[Prompt], once: Pass) -> list[Reply]:
    """Greedy replies of a server to prompts in their order."""
    return _run(_ask(server, prompts, once))


def score(server: Server, prompts: Sequence[Prompt], replies: Sequence[Reply]) -> list[Score]:
    """Judge replies.

    Args:
        server: one without speculation.
        prompts: all of them.
        replies: any.
    """
    return _run(_score(server, prompts, replies))


def _run(asked: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """What was asked for; the first of our errors where something broke."""
    try:
        return asyncio.run(asked)
    except BaseExceptionGroup as errors:
        raise (first_of(errors) or errors) from None


async def _ask(server: Server, prompts: Sequence[Prompt], once: Pass) -> list[Reply]:
    slots = asyncio.Semaphore(1 if once.mode == "alone" else CROWD)
    async with _client(server.endpoint) as client:
        if once.mode == "burst":
            with suppress(EngineError):  # how much was in the cache is in every row
                await client.get_text("/flush_cache")

        async def one(place: int, prompt: Prompt) -> Reply:
            sampling = {"temperature": 0.0, "max_new_tokens": MAX_TOKENS}
            async with slots:
                raw = await client.post_json("/generate", {"text": prompt.text, "sampling_params": sampling})
            meta = raw["meta_info"]
            return Reply(
                setting=server.setting.name,
                gpu=server.where.gpu,
                mode=once.mode,
                turn=once.turn,
                index=once.first + place,
                place=place,
                prompt_tokens=meta["prompt_tokens"],
                cached_tokens=meta.get("cached_tokens"),
                ids=raw["output_ids"],
                verify_steps=meta.get("spec_verify_ct"),
                histogram=meta.get("spec_correct_drafts_histogram"),
            )

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(place, prompt)) for place, prompt in enumerate(prompts)]
    return [task.result() for task in tasks]


async def _score(server: Server, prompts: Sequence[Prompt], replies: Sequence[Reply]) -> list[Score]:
    slots = asyncio.Semaphore(CROWD)
    async with _client(server.endpoint) as client, asyncio.TaskGroup() as group:

        async def one(reply: Reply) -> Score:
            prompt = prompts[reply.index].ids
            body = {
                "input_ids": [*prompt, *reply.ids],
                "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
                "return_logprob": True,
                "logprob_start_len": len(prompt) - 1,
                "top_logprobs_num": TOP,
            }
            async with slots:
                meta = (await client.post_json("/generate", body))["meta_info"]
            return judge(server.where.gpu, reply, meta)

        tasks = [group.create_task(one(reply)) for reply in replies]
    return [task.result() for task in tasks]


def judge(gpu: int, reply: Reply, meta: dict[str, Any]) -> Score:
    """How far each token of a reply lies behind the likeliest.

    Args:
        gpu: of the server that says so.
        reply: that was read.
        meta: its answer's ``meta_info``: [log-probability, id, text] of the tokens read, and of the likeliest.

    Raises:
        EngineError: the answer is not about these tokens.
    """
    count = len(reply.ids)
    tokens = meta["input_token_logprobs"][-count:]
    likeliest = meta["input_top_logprobs"][-count:]
    if [one[1] for one in tokens] != reply.ids or len(likeliest) != count:
        raise EngineError(
            f"input_token_logprobs must end with the {count} tokens of reply {reply.key}, but got "
            f"{[one[1] for one in tokens][:8]} and so on, {len(tokens)} in all; see logprob_start_len in this version"
        )
    behind, margins = [], []
    for position, (token, top) in enumerate(zip(tokens, likeliest, strict=True)):
        values = sorted((one[0] for one in top), reverse=True)
        if token[0] < values[0]:
            behind.append([position, values[0] - token[0]])
        if values[0] - values[1] < CLOSE:
            margins.append([position, values[0] - values[1]])
    return Score(gpu, reply.key, reply.index, behind, margins)


def _client(endpoint: Endpoint) -> EngineClient:
    return EngineClient(endpoint, timeout_s=_ASK_S, stall_s=_ASK_S)
