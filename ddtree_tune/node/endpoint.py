"""Finds out how a running server is to be asked: which model, which door, which fields.

Nothing is assumed: every door is tried with a real completion. SGLang's native ``/generate`` is
taken where it is there and the model's chat template can be had, for it counts verify steps in
every version; its prompts must cost what the same message costs at the chat endpoint, or the
template is not the server's.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddtree_tune.arguments import API_KEY
from ddtree_tune.core.engine import Endpoint, Route
from ddtree_tune.core.errors import EngineError, SpecError
from ddtree_tune.core.trace import Phase, RequestError
from ddtree_tune.node.client import ChatRequest, EngineClient, user
from ddtree_tune.node.template import chat_template

if TYPE_CHECKING:
    from ddtree_tune.core.trace import RequestTrace

FIRST_REPLY_S = 180.0
"""Most time for a first completion: a server may compile kernels for it."""
_MESSAGE = "Say hello to the world in a few words."
_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Found:
    """A server and how it is asked."""

    endpoint: Endpoint
    how: str
    """Which door and why, for people."""
    server_info: dict[str, Any]
    """What the server says of itself; empty if it does not."""
    running_cap: int | None
    """Most requests that it runs at once, by its own word."""


async def find_endpoint(
    base_url: str,
    model: str | None,
    *,
    route: Route | None = None,
    template: str | None = None,
    api_key: str | None = None,
) -> Found:
    """Look at a server.

    Args:
        base_url: scheme, host and port; a trailing ``/v1`` is dropped.
        model: the served name; the only one that the server lists when None.
        route: the door to take; the better one when None.
        template: folder with the model's chat template, for ``/generate``.
        api_key: bearer token, where the server wants one.

    Raises:
        SpecError: nobody answers, the model or the door is not there.
    """
    at = Endpoint(base_url.rstrip("/").removesuffix("/v1"), model or "", template=template, api_key=api_key)
    async with EngineClient(at, timeout_s=30, stall_s=30) as client:
        served = await _models(client)
        info = await _server_info(client)
    if model is None and served is not None and len(served) == 1:
        model = served[0]
    if model is None:
        listed = ", ".join(served or ()) or "nothing"
        raise SpecError(f"--model must name what {at.base_url} serves, but got none; it lists {listed}")
    if served and model not in served:
        raise SpecError(f"--model must be one of {', '.join(served)}, which {at.base_url} lists, but got {model}")
    endpoint, how = await _door(replace(at, served_model_name=model), route, info)
    return Found(endpoint, how, info, _cap(info))


async def _models(client: EngineClient) -> list[str] | None:
    """The served names, or None if the server does not list them."""
    try:
        listed = await client.get_json("/v1/models")
    except EngineError as error:
        if "but got 401" in error.message or "but got 403" in error.message:
            raise SpecError(f"{API_KEY} must hold a key that the server takes, but got: {error}") from None
        if "must answer 200" in error.message:
            return None
        raise SpecError(f"--base-url must be a server that answers, but got: {error}; start it first") from None
    data = listed.get("data") if isinstance(listed, dict) else None
    names = data if isinstance(data, list) else ()
    return [str(one["id"]) for one in names if isinstance(one, dict) and "id" in one]


async def _server_info(client: EngineClient) -> dict[str, Any]:
    for path in ("/server_info", "/get_server_info"):
        with contextlib.suppress(EngineError):
            info = await client.get_json(path)
            if isinstance(info, dict):
                return info
    return {}


async def _door(endpoint: Endpoint, route: Route | None, info: dict[str, Any]) -> tuple[Endpoint, str]:
    """Try the doors."""
    chat_endpoint, chat = await _try_chat(replace(endpoint, template=None))
    native_endpoint, native = await _try_native(endpoint, info)
    works = {Route.CHAT: chat.ok, Route.GENERATE: native.ok}
    if route is not None and not works[route]:
        trace = chat if route is Route.CHAT else native
        raise SpecError(
            f"--route {route} must work at {endpoint.base_url}, but got {trace.error}: {trace.error_detail}"
        )
    if not any(works.values()):
        raise SpecError(
            f"{endpoint.base_url} must complete a chat or a prompt, but got {chat.error}: {chat.error_detail} from the "
            f"chat endpoint and {native.error}: {native.error_detail} from /generate"
        )
    same = chat.ok and native.ok and chat.prompt_tokens is not None and chat.prompt_tokens == native.prompt_tokens
    templated = native_endpoint.template is not None
    if route is Route.GENERATE or (route is None and native.ok and ((templated and same) or not chat.ok)):
        with_what = f"the chat template of {native_endpoint.template}" if templated else "no chat template"
        return native_endpoint, f"/generate with {with_what}"
    why = ""
    if chat.spec is None and native.spec is not None:
        why = ", whose stream has no speculation counters; " + (
            f"the template of {native_endpoint.template} is not shown to be the server's: a message costs "
            f"{_tokens(native)} with it and {_tokens(chat)} by chat"
            if templated
            else "give --template DIR with the model's chat template to use /generate"
        )
    return chat_endpoint, f"/v1/chat/completions{why}"


def _tokens(trace: RequestTrace) -> str:
    return "an unknown number of tokens" if trace.prompt_tokens is None else f"{trace.prompt_tokens} tokens"


async def _try_chat(endpoint: Endpoint) -> tuple[Endpoint, RequestTrace]:
    """One chat completion; without the fields beyond OpenAI's if the server refuses them."""
    trace = await _ask(endpoint)
    if trace.error is RequestError.HTTP_4XX:
        plain = replace(endpoint, extensions=False)
        again = await _ask(plain)
        return (plain, again) if again.ok else (endpoint, trace)
    return endpoint, trace


async def _try_native(endpoint: Endpoint, info: dict[str, Any]) -> tuple[Endpoint, RequestTrace]:
    """One native completion, with the model's chat template where it can be read."""
    folder = endpoint.template
    for key in ("tokenizer_path", "model_path"):
        if folder is None and isinstance(info.get(key), str):
            with contextlib.suppress(SpecError):
                chat_template(info[key])
                folder = info[key]
    native = replace(endpoint, route=Route.GENERATE, template=folder)
    return native, await _ask(native)


async def _ask(endpoint: Endpoint) -> RequestTrace:
    request = ChatRequest(user(_MESSAGE), max_tokens=_TOKENS, ignore_eos=True)
    async with EngineClient(endpoint, timeout_s=FIRST_REPLY_S, stall_s=FIRST_REPLY_S) as client:
        return await client.chat(request, request_id="hello", phase=Phase.WARMUP, family="hello")


def _cap(info: dict[str, Any]) -> int | None:
    """Running requests over all data-parallel ranks, where the server says."""
    told = info.get("internal_states")
    states = [state for state in told if isinstance(state, dict)] if isinstance(told, list) else ()
    ranks = [state.get("effective_max_running_requests_per_dp") for state in states]
    known = [rank for rank in ranks if isinstance(rank, int)]
    if known and len(known) == len(ranks):
        return sum(known)
    cap = info.get("max_running_requests")
    return cap if isinstance(cap, int) and cap > 0 else None
