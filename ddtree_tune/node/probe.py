"""Asks a fresh server for proof of what it is; ``core.gate`` judges the answers."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Route
from ddtree_tune.core.errors import EngineError, FailureClass, SpecError
from ddtree_tune.core.gate import Probe
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.client import ChatRequest, EngineClient, user
from ddtree_tune.node.replies import counters
from ddtree_tune.node.template import chat_template

if TYPE_CHECKING:
    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.engine_spec import EngineSpec
    from ddtree_tune.core.spec import GateSpec
    from ddtree_tune.core.trace import RequestTrace, SpecCounters

CROWD_TOKENS = 64
"""Tokens of each request of the crowd: enough for several verify steps."""


async def run_probe(
    endpoint: Endpoint,
    gate: GateSpec,
    concurrency: int,
    *,
    alive: bool,
    port_owned: bool | None,
    engine: EngineSpec,
) -> Probe:
    """Read identity and configuration, then generate: twice the same question, then a crowd.

    The same prompt twice goes through the prefix cache; the crowd fills the largest batch of the
    load matrix. All of it shares the gate's deadline; what is not reached in time is missing.

    Args:
        endpoint: the server, by its chat endpoint.
        gate: what is asked.
        concurrency: of the crowd.
        alive: whether the launched process runs.
        port_owned: whether it listens on the port.
        engine: where the model's chat template lies.

    Returns:
        What was seen, with the door through which the load is to go.

    Raises:
        EngineError: the server does not even say what it is (`ready_but_no_generation`).
    """
    async with EngineClient(endpoint, timeout_s=gate.deadline_s, stall_s=gate.deadline_s) as client:
        try:
            models = await client.get_json("/v1/models")
            info = await client.get_json("/server_info")
        except EngineError as error:  # the scheduler answers there, and may hang while /health is good
            raise EngineError(
                f"a healthy server must say what it is within the gate's {gate.deadline_s:g} s, but got: {error}",
                FailureClass.NO_GENERATION,
            ) from None
        answers: list[RequestTrace] = []
        crowd: list[RequestTrace] = []
        unreached, counted, door = None, None, endpoint
        try:
            async with asyncio.timeout(gate.deadline_s):
                for turn in range(2):
                    answer = await _ask(client, gate.question, gate.max_tokens, f"probe-{turn}")
                    answers.append(answer)  # kept even if the deadline ends the next one
                if answers[0].ok and answers[0].spec is None:
                    counted = await _counted(client, gate)
                if answers[0].ok and engine.kind == "sglang":
                    door = await _native_door(endpoint, gate, engine, answers[0])
                tokens = min(CROWD_TOKENS, gate.max_tokens)
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_ask(client, gate.question, tokens, f"crowd-{turn}"))
                        for turn in range(concurrency)
                    ]
                crowd = [task.result() for task in tasks]
        except TimeoutError:
            unreached = f"no answer within the gate's {gate.deadline_s:g} s"
    return Probe(alive, port_owned, _served(models), dict(info), tuple(answers), tuple(crowd), unreached, counted, door)


async def _ask(client: EngineClient, question: str, max_tokens: int, request_id: str) -> RequestTrace:
    request = ChatRequest(user(question), max_tokens=max_tokens)
    return await client.chat(request, request_id=request_id, phase=Phase.WARMUP, family="gate")


async def _counted(client: EngineClient, gate: GateSpec) -> SpecCounters | None:
    """Speculation as the server counts it where its chat stream does not say (SGLang before 0.5.19)."""
    with contextlib.suppress(EngineError):
        return counters(await client.chat_once(ChatRequest(user(gate.question), max_tokens=gate.max_tokens)))
    return None


async def _native_door(endpoint: Endpoint, gate: GateSpec, engine: EngineSpec, chat: RequestTrace) -> Endpoint:
    """The native endpoint, whose stream counts verify steps in every version, where it is the same question there.

    That takes the model's chat template, and a prompt that costs what it costs by chat: a template
    that is not the server's would measure another prompt. It does not depend on the setting, for
    settings must be compared through one door.

    Raises:
        EngineError: it is there and fails (`ready_but_no_generation`).
    """
    folder = engine.template or engine.model
    if folder is None:
        return endpoint
    try:
        chat_template(folder)
    except SpecError:
        return endpoint
    native = replace(endpoint, route=Route.GENERATE, template=folder)
    async with EngineClient(native, timeout_s=gate.deadline_s, stall_s=gate.deadline_s) as client:
        answer = await _ask(client, gate.question, CROWD_TOKENS, "probe-native")
    if not answer.ok and answer.status_code != 404:
        raise EngineError(
            f"/generate must answer what the chat endpoint answers, but got {answer.error}: {answer.error_detail}",
            FailureClass.NO_GENERATION,
        )
    same = answer.ok and chat.prompt_tokens is not None and answer.prompt_tokens == chat.prompt_tokens
    return native if same else endpoint


def _served(models: dict[str, object]) -> tuple[str, ...]:
    data = models.get("data")
    if not isinstance(data, list):
        raise EngineError(f"/v1/models must list its models under data, but got {str(models)[:120]!r}")
    return tuple(str(one.get("id")) for one in data if isinstance(one, dict))
