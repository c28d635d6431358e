"""Asks a fresh server for proof of what it is; ``core.gate`` judges the answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import EngineError
from ddtree_tune.core.gate import Probe
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.client import ChatRequest, EngineClient, user

if TYPE_CHECKING:
    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.spec import GateSpec
    from ddtree_tune.core.trace import RequestTrace

CROWD_TOKENS = 64
"""Tokens of each request of the crowd: enough for several verify steps."""


async def run_probe(
    endpoint: Endpoint, gate: GateSpec, concurrency: int, *, alive: bool, port_owned: bool | None
) -> Probe:
    """Read identity and configuration, then generate: twice the same question, then a crowd.

    The same prompt twice goes through the prefix cache; the crowd fills the largest batch of the
    load matrix. All of it shares the gate's deadline; what is not reached in time is missing.

    Raises:
        EngineError: the server does not even name itself.
    """
    async with EngineClient(endpoint, timeout_s=gate.deadline_s, stall_s=gate.deadline_s) as client:
        models = await client.get_json("/v1/models")
        info = await client.get_json("/server_info")
        answers: list[RequestTrace] = []
        crowd: list[RequestTrace] = []
        unreached = None
        try:
            async with asyncio.timeout(gate.deadline_s):
                for turn in range(2):
                    answer = await _ask(client, gate.question, gate.max_tokens, f"probe-{turn}")
                    answers.append(answer)  # kept even if the deadline ends the next one
                tokens = min(CROWD_TOKENS, gate.max_tokens)
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_ask(client, gate.question, tokens, f"crowd-{turn}"))
                        for turn in range(concurrency)
                    ]
                crowd = [task.result() for task in tasks]
        except TimeoutError:
            unreached = f"no answer within the gate's {gate.deadline_s:g} s"
    return Probe(alive, port_owned, _served(models), dict(info), tuple(answers), tuple(crowd), unreached)


async def _ask(client: EngineClient, question: str, max_tokens: int, request_id: str) -> RequestTrace:
    request = ChatRequest(user(question), max_tokens=max_tokens)
    return await client.chat(request, request_id=request_id, phase=Phase.WARMUP, family="gate")


def _served(models: dict[str, object]) -> tuple[str, ...]:
    data = models.get("data")
    if not isinstance(data, list):
        raise EngineError(f"/v1/models must list its models under data, but got {str(models)[:120]!r}")
    return tuple(str(one.get("id")) for one in data if isinstance(one, dict))
