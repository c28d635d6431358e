"""A server whose truth is known: SGLang's HTTP surface, told what to do, recording what it did.

Runs as a process of its own. ``POST /script`` says how the next requests behave and forgets what
was recorded; ``GET /truth`` tells when each chunk was really sent. Its clock is the client's:
``perf_counter_ns`` is one monotonic clock for the whole machine.

A token is one word; the chat template adds ``TEMPLATE`` tokens around a message.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
import time
from dataclasses import asdict, fields

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.truth.reply import Reply, Script, natural_length, plan

TEMPLATE = 5
MODEL = "truth"


def count_words(text):
    return len(re.findall(r"\w+|[^\w\s]", text))


class Truth:
    """What was asked and what was done."""

    def __init__(self):
        self.start(Script())

    def start(self, script):
        self.script = script
        self.told = time.perf_counter()
        self.requests = []
        self.prompts = set()
        self.flood = None
        self.running = asyncio.Semaphore(script.running_cap or 10_000)

    def age_s(self):
        """Since the script was told."""
        return time.perf_counter() - self.told


STATE = Truth()


async def script(request):
    known = {one.name for one in fields(Script)}
    body = await request.json()
    if set(body) - known:
        raise KeyError(set(body) - known)
    STATE.start(Script(**body))
    return JSONResponse(asdict(STATE.script))


async def truth(request):
    return JSONResponse(STATE.requests)


async def health(request):
    return Response()


async def models(request):
    return JSONResponse({"object": "list", "data": [{"id": MODEL, "max_model_len": 32768}]})


async def info(request):
    await asyncio.sleep(STATE.script.info_s)
    cap = STATE.script.running_cap
    states = [{"avg_spec_accept_length": 6.0}]
    return JSONResponse({"max_running_requests": cap or 1024, "internal_states": states})


async def flush(request):
    STATE.prompts.clear()
    return PlainTextResponse("Cache flushed.")


async def tokenize(request):
    body = await request.json()
    how = STATE.script.tokenize
    if how is None:
        return JSONResponse({"detail": "Not Found"}, 404)
    if how not in body:
        return JSONResponse({"error": {"message": f"{how} is required"}}, 422)
    text = body["prompt"] if how == "prompt" else body["messages"][0]["content"]
    count = prompt_tokens(text) - (TEMPLATE if how == "prompt" else 0)
    return JSONResponse({"tokens": list(range(count)), "count": count, "max_model_len": 32768})


def prompt_tokens(text):
    return count_words(text) + TEMPLATE


async def chat(request):
    received = time.perf_counter_ns()
    body = await request.json()
    return await generate(request, body, body["messages"][0]["content"], body["max_tokens"], received, native=False)


async def native(request):
    received = time.perf_counter_ns()
    body = await request.json()
    wanted = body["sampling_params"]["max_new_tokens"]
    return await generate(request, body, body["text"], wanted, received, native=True)


async def generate(request, body, text, wanted, received, *, native):
    script, number = STATE.script, len(STATE.requests)
    sha = hashlib.sha256(text.encode()).hexdigest()
    seen = script.remember and sha in STATE.prompts
    STATE.prompts.add(sha)
    count = round(prompt_tokens(text) * script.prompt_scale)
    chunks, finish = plan(script, wanted, text, natural_length(script, body))
    record = {"body": body, "sha": sha, "received_ns": received, "sent_ns": [], "tokens": [], "prompt_tokens": count}
    record |= {"completion_tokens": sum(tokens for tokens, _, _ in chunks), "end_ns": None, "prompt": text}
    STATE.requests.append(record)
    if script.die_after is not None and number >= script.die_after:
        os._exit(9)
    fault = script.fault if (number + 1) % script.fault_every == 0 else None
    if fault and fault.isdigit():
        return JSONResponse({"error": {"message": "refused"}}, int(fault))
    if fault == "json_error":
        return JSONResponse({"error": {"message": "out of memory"}})
    if fault == "empty":
        return Response()
    cached = (count - 1 if seen else min(6, count)) if script.report_cached else None
    reply = Reply(STATE, script, number, record, chunks, finish, cached, seen, fault, native)
    if not body.get("stream"):
        return JSONResponse(reply.whole())
    return StreamingResponse(reply.stream(body), media_type="text/event-stream")


ROUTES = [
    Route("/script", script, methods=["POST"]),
    Route("/truth", truth),
    Route("/health", health),
    Route("/v1/models", models),
    Route("/server_info", info),
    Route("/flush_cache", flush, methods=["GET", "POST"]),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/v1/chat/completions", chat, methods=["POST"]),
    Route("/generate", native, methods=["POST"]),
]


class Announced(uvicorn.Server):
    """Says its port once it listens."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


if __name__ == "__main__":
    quiet = uvicorn.Config(Starlette(routes=ROUTES), host="127.0.0.1", port=0, log_level="critical", access_log=False)
    try:
        Announced(quiet).run()
    except KeyboardInterrupt:
        sys.exit(0)
