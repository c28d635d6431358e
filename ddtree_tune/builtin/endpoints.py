"""The generating endpoints: SGLang's ``/generate`` and OpenAI's chat and text completions.

Field names and shapes are SGLang's. A streamed chunk holds the tokens of one verify step; with
``continuous_usage_stats`` each chunk says how many tokens there are so far.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from ddtree_tune.builtin.protocol import ChatRequest, CompletionRequest, GenerateRequest, parse
from ddtree_tune.builtin.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from ddtree_tune.builtin.generation import Generation, Piece
    from ddtree_tune.builtin.service import Reply, Service

DONE = b"data: [DONE]\n\n"
CLIENT_GONE = 499
"""What nobody reads: the client closed the connection."""


async def generate(request: Request) -> Response:
    """``POST /generate``."""
    service: Service = request.app.state.service
    body = parse(GenerateRequest, await request.body())
    asked = body.sampling_params
    prompt = service.prompt(body.text, body.input_ids)
    sampling = Sampling(
        service.limit(prompt, asked.max_new_tokens),
        asked.temperature,
        asked.top_p,
        asked.top_k,
        asked.min_p,
        asked.sampling_seed,
        asked.ignore_eos,
        frozenset(asked.stop_token_ids or ()),
    )
    reply = service.begin(prompt, sampling, asked.stop)
    if body.stream:
        return _event_stream(_native_events(reply, service.facts.stream_interval))
    return await _answer(request, reply, _native)


async def chat(request: Request) -> Response:
    """``POST /v1/chat/completions``."""
    service: Service = request.app.state.service
    body = parse(ChatRequest, await request.body())
    service.check_model(body.model)
    prompt = service.chat_prompt(body.messages, body.chat_template_kwargs)
    reply = service.begin(prompt, body.sampling(service.limit(prompt, body.max_tokens)), body.stop)
    return await _openai(request, SPLIT_CHAT if body.separate_reasoning else INLINE_CHAT, body, reply)


async def complete(request: Request) -> Response:
    """``POST /v1/completions``."""
    service: Service = request.app.state.service
    body = parse(CompletionRequest, await request.body())
    service.check_model(body.model)
    text = body.prompt if isinstance(body.prompt, str) else None
    prompt = service.prompt(text, None if isinstance(body.prompt, str) else body.prompt)
    reply = service.begin(prompt, body.sampling(service.limit(prompt, body.max_tokens)), body.stop)
    return await _openai(request, COMPLETION, body, reply)


async def _openai(request: Request, form: _Form, body: ChatRequest | CompletionRequest, reply: Reply) -> Response:
    service: Service = request.app.state.service
    answer = _OpenAiReply(form, body, reply)
    if body.stream:
        return _event_stream(answer.events(service.facts.stream_interval))
    return await _answer(request, reply, answer.whole)


def _native(generation: Generation) -> dict[str, Any]:
    return {"text": generation.text, "output_ids": generation.token_ids, "meta_info": generation.meta_info}


async def _native_events(reply: Reply, interval: int) -> AsyncIterator[bytes]:
    async with aclosing(reply.pieces(interval)) as pieces:
        async for _ in pieces:
            yield _event(_native(reply.generation))
    yield DONE


@dataclass(frozen=True, slots=True)
class _Form:
    """Where the two OpenAI endpoints differ."""

    prefix: str
    kind: str
    chunk_kind: str
    whole: Callable[[Generation], dict[str, Any]]
    """The text part of a whole reply's choice."""
    delta: Callable[[Piece], dict[str, Any]]
    """The text part of a chunk's choice."""
    opening: dict[str, Any] | None
    """The text part of a chunk before any text; it is sent when there is text."""
    closing: dict[str, Any]
    """The text part of the chunk that ends the reply."""


def _delta(role: str | None, content: str | None, thought: str | None) -> dict[str, Any]:
    return {"delta": {"role": role, "content": content, "reasoning_content": thought, "tool_calls": None}}


def _message(content: str, thought: str | None) -> dict[str, Any]:
    return {
        "message": {"role": "assistant", "content": content, "reasoning_content": thought or None, "tool_calls": None}
    }


_CHAT = ("chatcmpl-", "chat.completion", "chat.completion.chunk")
SPLIT_CHAT = _Form(
    *_CHAT,
    lambda generation: _message(generation.answer, generation.thought),
    lambda piece: _delta(None, piece.answer or (None if piece.thought else ""), piece.thought or None),
    _delta("assistant", "", None),
    _delta(None, None, None),
)
"""Chat with the thought in fields of its own."""
INLINE_CHAT = _Form(
    *_CHAT,
    lambda generation: _message(generation.text, None),
    lambda piece: _delta(None, piece.text, None),
    _delta("assistant", "", None),
    _delta(None, None, None),
)
"""Chat with the thought inside the text, tags included."""
COMPLETION = _Form(
    "cmpl-",
    "text_completion",
    "text_completion",
    lambda generation: {"text": generation.text},
    lambda piece: {"text": piece.text},
    None,
    {"text": ""},
)


class _OpenAiReply:
    """One reply in OpenAI's words."""

    def __init__(self, form: _Form, body: ChatRequest | CompletionRequest, reply: Reply) -> None:
        self._form = form
        self._body = body
        self._reply = reply
        self._id = form.prefix + reply.generation.request_id
        self._created = int(datetime.now(UTC).timestamp())

    def whole(self, generation: Generation) -> dict[str, Any]:
        """The reply of a request without stream."""
        choice = {"index": 0} | self._form.whole(generation) | {"logprobs": None} | _ending(generation)
        if self._body.return_meta_info:
            choice["meta_info"] = generation.meta_info
        return self._frame(self._form.kind, [choice]) | {
            "usage": generation.usage,
            "metadata": {"weight_version": "default"},
        }

    async def events(self, interval: int) -> AsyncIterator[bytes]:
        """The chunks of a streamed reply."""
        form, generation, options = self._form, self._reply.generation, self._body.stream_options
        opening = form.opening
        async with aclosing(self._reply.pieces(interval)) as pieces:
            async for piece in pieces:
                if opening is not None:
                    yield self._chunk(opening)
                    opening = None
                yield self._chunk(form.delta(piece))
        yield self._chunk(form.closing, _ending(generation))
        if self._body.return_spec_tokens_details and generation.spec_details is not None:
            yield _event(
                self._frame(form.chunk_kind, []) | {"sglext": {"spec_tokens_details": generation.spec_details}}
            )
        if options is not None and options.include_usage:
            yield _event(self._frame(form.chunk_kind, []) | {"usage": generation.usage})
        yield DONE

    def _chunk(self, text: dict[str, Any], ending: dict[str, Any] | None = None) -> bytes:
        ending = ending or {"finish_reason": None, "matched_stop": None}
        options = self._body.stream_options
        counted = options is not None and options.continuous_usage_stats
        return _event(
            self._frame(self._form.chunk_kind, [{"index": 0} | text | {"logprobs": None} | ending])
            | {"usage": self._reply.generation.usage if counted else None}
        )

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id, "object": kind, "created": self._created, "model": self._body.model, "choices": choices,
        }  # fmt: skip


def _ending(generation: Generation) -> dict[str, Any]:
    return {"finish_reason": generation.finish, "matched_stop": generation.matched}


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _event_stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def _answer(request: Request, reply: Reply, form: Callable[[Generation], dict[str, Any]]) -> Response:
    """Run a reply to its end, unless the client leaves first."""
    work = asyncio.create_task(reply.whole())
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(form(work.result()))
    finally:
        work.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
