"""The HTTP application: routes, errors, health, start and shutdown."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ddtree_tune.builtin import endpoints
from ddtree_tune.builtin.protocol import Refused, TokenizeRequest, parse
from ddtree_tune.builtin.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from ddtree_tune.builtin.service import Service

READY_LINE = "The server is fired up and ready to roll!"
"""SGLang's; supervisors look for it."""
WARM_UP_TEXT = "def add(a, b):"
HEALTH_DEADLINE_S = 20.0
"""SGLang's default for a generating health check."""

log = logging.getLogger(__name__)


def application(service: Service) -> Starlette:
    """The server over one engine; it is ready once the lifespan's warm-up has generated."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.worker.start(asyncio.get_running_loop())
        warm_up = asyncio.create_task(_warm_up(service))
        try:
            yield
        finally:
            service.ready = False
            warm_up.cancel()
            service.worker.stop()

    app = Starlette(
        routes=[
            Route("/generate", endpoints.generate, methods=["POST"]),
            Route("/v1/chat/completions", endpoints.chat, methods=["POST"]),
            Route("/v1/completions", endpoints.complete, methods=["POST"]),
            Route("/v1/models", _models),
            Route("/model_info", _model_info),
            Route("/get_model_info", _model_info),
            Route("/server_info", _server_info),
            Route("/get_server_info", _server_info),
            Route("/health", _health),
            Route("/health_generate", _health_generate),
            Route("/flush_cache", _flush_cache, methods=["GET", "POST"]),
            Route("/tokenize", _tokenize, methods=["POST"]),
            Route("/v1/tokenize", _tokenize, methods=["POST"]),
            Route("/metrics", _metrics),
        ],
        exception_handlers={Refused: _refuse, HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.state.service = service
    return app


async def _warm_up(service: Service) -> None:
    """Generate once, then declare the server ready."""
    await _generate_one(service, tokens=8)
    service.worker.post(lambda scheduler: scheduler.forget())
    service.ready = True
    log.info(READY_LINE)


async def _generate_one(service: Service, tokens: int = 1) -> None:
    prompt = service.prompt(WARM_UP_TEXT, None)
    await service.begin(prompt, Sampling(tokens, temperature=0.0, ignore_eos=True), None).whole()


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _models(request: Request) -> Response:
    facts = _service(request).facts
    model = {
        "id": facts.served_model_name,
        "object": "model",
        "created": facts.created,
        "owned_by": "ddtree_tune",
        "root": facts.served_model_name,
        "parent": None,
        "max_model_len": facts.max_model_len,
    }
    return JSONResponse({"object": "list", "data": [model]})


async def _model_info(request: Request) -> Response:
    return JSONResponse(_service(request).model_info())


async def _server_info(request: Request) -> Response:
    return JSONResponse(_service(request).server_info())


async def _metrics(request: Request) -> Response:
    return PlainTextResponse(_service(request).metrics(), media_type="text/plain; version=0.0.4")


async def _health(request: Request) -> Response:
    return Response(status_code=200 if _service(request).ready else 503)


async def _health_generate(request: Request) -> Response:
    service = _service(request)
    if not service.ready:
        return Response(status_code=503)
    try:
        async with asyncio.timeout(HEALTH_DEADLINE_S):
            await _generate_one(service)
    except TimeoutError:
        return Response(status_code=503)
    return Response()


async def _flush_cache(request: Request) -> Response:
    """Forget the acceptance counters; there is no prefix cache."""
    service = _service(request)
    if service.worker.pending:
        return PlainTextResponse(
            f"Flushing needs an idle server, but {service.worker.pending} requests are pending; wait for them.\n", 400
        )
    service.worker.post(lambda scheduler: scheduler.forget_acceptance())
    return PlainTextResponse("Cache flushed.\n")


async def _tokenize(request: Request) -> Response:
    service = _service(request)
    body = parse(TokenizeRequest, await request.body())
    service.check_model(body.model)
    if body.messages is not None:
        tokens = list(service.chat_prompt(body.messages, body.chat_template_kwargs))
    else:
        tokens = service.codec.encode(body.prompt or "", special=body.add_special_tokens)
    return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": service.facts.max_model_len})


async def _refuse(_: Request, error: Exception) -> Response:
    if not isinstance(error, Refused):
        raise error
    return _error(error.message, error.status, error.parameter)


async def _http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _error(error.detail, error.status_code, None)


def _error(message: str, status: int, parameter: str | None) -> Response:
    kind = "NotFoundError" if status == 404 else "BadRequestError"
    content = {"error": {"message": message, "type": kind, "param": parameter, "code": status}}
    return JSONResponse(content, status)
