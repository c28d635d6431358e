"""The fake's HTTP surface."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.sglang import log, replies
from tests.sglang.engine import RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from tests.sglang.engine import Engine, Generation

_LONGEST = 128
"""``max_new_tokens`` of a native request that does not say."""


class Server:
    """Answers as SGLang does, over one engine."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.is_ready = False
        self.is_ending = False
        self._salts = itertools.count()

    def application(self) -> Starlette:
        """The ASGI application."""
        both = ["GET", "POST"]
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/health_generate", self.health),
                Route("/v1/models", self.models),
                Route("/model_info", self.model_info),
                Route("/get_model_info", self.model_info),
                Route("/server_info", self.server_info),
                Route("/get_server_info", self.old_server_info),
                Route("/flush_cache", self.flush, methods=both),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/tokenize", self.tokenize, methods=["POST"]),
                *([Route("/metrics", self.metrics)] if self.engine.resolved.enable_metrics else []),
                Route("/generate", self.generate, methods=["POST", "PUT"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/truth", self.truth),
            ]
        )

    async def health(self, request: Request) -> Response:
        if self.is_ending or not self.is_ready:
            return Response(status_code=503)
        await asyncio.sleep(self.engine.scenario.health_s)
        return Response()

    async def models(self, request: Request) -> Response:
        name = self.engine.resolved.served_model_name
        card = {"id": name, "object": "model", "created": replies.now(), "owned_by": "sglang", "root": name}
        card |= {"parent": None, "max_model_len": self.engine.context}
        return JSONResponse({"object": "list", "data": [card]})

    async def model_info(self, request: Request) -> Response:
        info = json.loads((replies.RECORDS / "server_info.json").read_text(encoding="utf-8"))["model_info"]
        resolved = self.engine.resolved
        info |= {"model_path": resolved.model_path, "tokenizer_path": resolved.tokenizer_path}
        return JSONResponse(info)

    async def server_info(self, request: Request) -> Response:
        return JSONResponse(replies.server_info(self.engine, os.environ))

    async def old_server_info(self, request: Request) -> Response:
        log.say(
            "Endpoint '/get_server_info' is deprecated and will be removed in a future version. "
            "Please use '/server_info' instead."
        )
        return await self.server_info(request)

    async def flush(self, request: Request) -> Response:
        if not self.engine.flush():
            return PlainTextResponse("Flush cache failed.\n", 400)
        return PlainTextResponse(
            "Cache flushed.\nPlease check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        codec, prompt = self.engine.codec, body.get("prompt")
        if body.get("messages") is not None:
            prompt = codec.render(body["messages"], body.get("chat_template_kwargs") or {})
        if isinstance(prompt, str):
            tokens = codec.pieces(prompt)[0]
            count: Any = len(tokens)
        elif isinstance(prompt, list):
            tokens = [codec.pieces(one)[0] for one in prompt]
            count = [len(one) for one in tokens]
        else:
            return JSONResponse(replies.error(f"Invalid prompt type: {type(prompt)}. Expected str or List[str]."), 400)
        return JSONResponse({"tokens": tokens, "count": count, "max_model_len": self.engine.context})

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(replies.metrics(self.engine))

    async def truth(self, request: Request) -> Response:
        return JSONResponse(self.engine.truth)

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        sampling = body.get("sampling_params") or {}
        if body.get("return_logprob") and self.engine.resolved.speculates and self.engine.scenario.version == "0.5.17":
            message = "DFLASH speculative decoding does not support return_logprob yet."
            return JSONResponse({"error": {"message": message}}, 400)
        if body.get("return_logprob"):
            return JSONResponse(replies.scored(body))
        try:
            one = self.engine.make(
                body["text"],
                wanted=sampling.get("max_new_tokens", _LONGEST),
                ignore_eos=sampling.get("ignore_eos", False),
                salt=self._salt(sampling.get("temperature", 1.0), sampling.get("sampling_seed")),
                thinks=True,
            )
        except RefusedError as refusal:
            return JSONResponse({"error": {"message": str(refusal)}}, 400)
        if body.get("stream"):
            return _events(self._native_events(one, body))
        await self._finish(one, body)
        return JSONResponse(replies.stamped(replies.native(self.engine, one, one.sent)))

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        if body.get("stream") and body.get("return_meta_info"):
            message = "return_meta_info is not supported with streaming. "
            message += "Please set stream=false when using return_meta_info=true."
            return JSONResponse(replies.error(message), 400)
        options = body.get("chat_template_kwargs") or {}
        try:
            one = self.engine.make(
                self.engine.codec.render(body["messages"], options),
                wanted=body.get("max_completion_tokens") or body.get("max_tokens") or self.engine.context,
                ignore_eos=body.get("ignore_eos", False),
                salt=self._salt(body.get("temperature", 1.0), body.get("seed")),
                thinks=options.get("thinking", options.get("enable_thinking", True)),
            )
        except RefusedError as refusal:
            return JSONResponse(replies.error(str(refusal)), 400)
        if body.get("stream"):
            return _events(self._chat_events(one, body))
        await self._finish(one, body)
        return JSONResponse(replies.chat(self.engine, one, body))

    def _salt(self, temperature: float, seed: int | None) -> str:
        """What makes a sampled answer differ from others; a greedy one has none."""
        if temperature == 0:
            return ""
        return f"call {next(self._salts)}" if seed is None else f"seed {seed}"

    async def _finish(self, one: Generation, body: dict[str, Any]) -> None:
        async for _ in self.engine.submit(one, body):
            pass

    async def _native_events(self, one: Generation, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        async for sent in self.engine.submit(one, body):
            yield replies.native(self.engine, one, sent)

    async def _chat_events(self, one: Generation, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        engine, options = self.engine, body.get("stream_options") or {}
        chunk = {"id": one.id, "object": "chat.completion.chunk", "created": replies.now()}
        chunk |= {"model": body.get("model", "default")}
        separate = body.get("separate_reasoning", True)
        before: tuple[str | None, str] = (None, "")
        async for sent in engine.submit(one, body):
            if sent == 1:
                yield chunk | {"choices": [_choice({"role": "assistant", "content": ""})], "usage": None}
            after = replies.parts(engine, one, sent, separate=separate)
            usage = replies.usage(engine, one, sent) if options.get("continuous_usage_stats") else None
            reasoning = (after[0] or "")[len(before[0] or "") :]
            if reasoning:
                yield chunk | {"choices": [_choice({"reasoning_content": reasoning})], "usage": usage}
            if content := after[1][len(before[1]) :]:
                yield chunk | {"choices": [_choice({"content": content})], "usage": usage}
            before = after
        ending = {"finish_reason": one.finish["type"], "matched_stop": one.finish.get("matched")}
        yield chunk | {"choices": [_choice({}) | ending], "usage": None}
        if engine.scenario.version == "0.5.23" and body.get("return_spec_tokens_details"):
            details = replies.spec_details(engine, one)
            if details is not None:
                yield chunk | {"choices": [], "usage": None, "sglext": details}
        if options.get("include_usage"):
            yield chunk | {"choices": [], "usage": replies.usage(engine, one, one.sent)}


def _choice(delta: dict[str, Any]) -> dict[str, Any]:
    whole = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None} | delta
    return {"index": 0, "delta": whole, "logprobs": None, "finish_reason": None, "matched_stop": None}


def _events(items: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async for item in items:
            yield f"data: {json.dumps(item, ensure_ascii=False)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")
