"""One request to one server, as a `RequestTrace`; the only user of httpx.

A server's fault never raises: it becomes the trace's error class, because a failed request is a
row. Tokens come from the server's own counts, never from chunks: with speculation one chunk holds
a whole verify step.

Use one client per stream. Many streams on one client share a connection pool whose bookkeeping
grows with its warm connections; at 64 of them it adds 400 ms to the first token.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import httpx
from pydantic import ValidationError

from ddtree_tune.core.errors import EngineError, boundary
from ddtree_tune.core.sse import SseParser
from ddtree_tune.core.trace import Phase, RequestError, RequestTrace
from ddtree_tune.node.live import ChatRequest, LiveTrace, Messages, user
from ddtree_tune.node.replies import TokenCount, charged
from ddtree_tune.node.stream import DETAIL_CHARS, StreamFault, judge, not_a_stream, read_chat, read_generate

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ChatRequest", "EngineClient", "user"]

_KEEPALIVE_S = 2.0
"""Below uvicorn's 5 s, so that we never write to a connection the server is closing."""
_TAIL_S = 0.1
"""How long the end of the body may take after the end marker before we close the connection."""


@dataclass(frozen=True, slots=True)
class _Counting:
    """How one server counts tokens."""

    path: str | None = None
    """None if it does not."""
    key: str = "messages"
    extra: int = 0
    """Tokens of the template that the endpoint leaves out."""


class EngineClient:
    """Talks to one server over its OpenAI-compatible and native endpoints."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        timeout_s: float,
        stall_s: float,
        connect_s: float = 5.0,
        spec_details: bool = True,
        api_key: str | None = None,
    ) -> None:
        """Set up; no connection is made yet.

        Args:
            base_url: scheme, host and port, without ``/v1``.
            model: the served name.
            timeout_s: most time for a whole request.
            stall_s: most time without a byte.
            connect_s: most time for a connection.
            spec_details: ask for speculation counters; leave out for servers that refuse the field.
            api_key: bearer token, where the server wants one.
        """
        self._base_url = base_url.rstrip("/")
        self._model = model
        self._timeout_s = timeout_s
        self._spec_details = spec_details
        self._counting: _Counting | None = None
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._http = httpx.AsyncClient(
            base_url=self._base_url,
            headers=headers,
            # Without TLS the context would never be used, and it costs 50 ms for every client.
            verify=base_url.startswith("https:"),
            # Nothing between us and a measured server.
            trust_env=False,
            timeout=httpx.Timeout(stall_s, connect=connect_s, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=1, keepalive_expiry=_KEEPALIVE_S),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def chat(
        self, request: ChatRequest, *, request_id: str, phase: Phase, family: str, live: LiveTrace | None = None
    ) -> RequestTrace:
        """Stream one completion; never raises for a server's fault.

        Args:
            request: what to ask.
            request_id: names the trace.
            phase: of the cell.
            family: of the prompt.
            live: filled while the reply arrives, for callers that watch or cancel. It survives a
                cancellation, which propagates.

        Returns:
            The trace; its ``error`` is set if anything went wrong.
        """
        live = live or LiveTrace(request_id, phase, family, request.sha)
        path, body, read = self._streamed(request)
        call = self._http.build_request("POST", path, json=body)
        live.sent_ns = time.perf_counter_ns()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._stream(call, read, live)
        except StreamFault as fault:
            return live.freeze(fault.error, fault.detail)
        except TimeoutError:
            return live.freeze(RequestError.TIMEOUT, f"no end within {self._timeout_s:g} s")
        except httpx.HTTPError as error:
            return live.freeze(_classify(error), f"{type(error).__name__}: {error}"[:DETAIL_CHARS])
        return live.freeze()

    async def chat_once(self, request: ChatRequest) -> dict[str, Any]:
        """Ask without streaming; ``choices[0].meta_info`` holds SGLang's own counters.

        Raises:
            EngineError: the server failed or answered something that is not a reply.
        """
        path, body, _ = self._streamed(request)
        for name in ("stream_options", "return_spec_tokens_details"):
            body.pop(name, None)
        body["stream"] = False
        if request.messages is not None and self._spec_details:
            body["return_meta_info"] = True
        reply = await self.post_json(path, body)
        if not isinstance(reply, dict):
            raise EngineError(f"{path} must answer an object, but got {type(reply).__name__}; check the server")
        return reply

    async def get_json(self, path: str) -> Any:
        """Fetch JSON; raise EngineError for anything but a 200 with JSON."""
        return await self._call("GET", path, None, httpx.Response.json)

    async def post_json(self, path: str, body: Any) -> Any:
        """Post JSON and take JSON; raise EngineError for anything but a 200 with JSON."""
        return await self._call("POST", path, body, httpx.Response.json)

    async def get_text(self, path: str) -> str:
        """Fetch text, which may be empty; raise EngineError for anything but a 200."""
        text: str = await self._call("GET", path, None, lambda response: response.text)
        return text

    async def count_tokens(self, messages: Messages) -> int | None:
        """Count a conversation's prompt tokens as the server does, template included.

        How the server counts is learned once: ``/tokenize`` is trusted with messages only if it
        agrees with the usage of a real request. Where it takes plain text alone (SGLang), what the
        template adds to one user message is the difference between the two.

        Returns:
            The count, or None if the server cannot count such a conversation.

        Raises:
            EngineError: the server could count before and now fails.
        """
        if self._counting is None:
            self._counting = await self._learn_counting()
        how = self._counting
        if how.path is None or (how.key == "prompt" and len(messages) != 1):
            return None
        return how.extra + await self._tokenize(how.path, how.key, messages)

    async def _learn_counting(self) -> _Counting:
        """Find an endpoint, and compare it with what a real request is charged."""
        messages = user("How many words does this sentence hold?")
        reply = await self.chat_once(ChatRequest(messages, max_tokens=1))
        for path in ("/tokenize", "/v1/tokenize"):
            for key in ("messages", "prompt"):
                with contextlib.suppress(EngineError, ValidationError):
                    extra = charged(reply) - await self._tokenize(path, key, messages)
                    if key == "prompt" or extra == 0:
                        return _Counting(path, key, extra)
        return _Counting()

    async def _tokenize(self, path: str, key: str, messages: Messages) -> int:
        value = messages[0]["content"] if key == "prompt" else [dict(message) for message in messages]
        body = {"model": self._model, key: value} | ({"add_special_tokens": False} if key == "prompt" else {})
        return TokenCount.model_validate(await self.post_json(path, body)).count

    async def _call(self, method: str, path: str, body: Any, take: Callable[[httpx.Response], Any]) -> Any:
        with boundary(EngineError, f"{method} {self._base_url}{path}"):
            async with asyncio.timeout(self._timeout_s):
                response = await self._http.request(method, path, **({} if body is None else {"json": body}))
            if response.status_code != 200:
                raise EngineError(
                    f"{method} {response.url} must answer 200, but got {response.status_code}: "
                    f"{response.text[:DETAIL_CHARS]!r}; see the server's log"
                )
            return take(response)

    def _streamed(self, request: ChatRequest) -> tuple[str, dict[str, Any], Callable[[str, int, LiveTrace], None]]:
        """Where to send a request, what, and how to read each event."""
        if request.messages is None:
            sampling: dict[str, Any] = {
                "max_new_tokens": request.max_tokens,
                "temperature": request.temperature,
                "top_p": request.top_p,
                "ignore_eos": request.ignore_eos,
            }
            if request.seed is not None:
                sampling["sampling_seed"] = request.seed
            native = {"text": request.prompt, "sampling_params": sampling, "stream": True}
            return "/generate", native | dict(request.extra), read_generate
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if request.ignore_eos:
            body["ignore_eos"] = True
        if request.seed is not None:
            body["seed"] = request.seed
        if self._spec_details:
            body["return_spec_tokens_details"] = True
        return "/v1/chat/completions", body | dict(request.extra), read_chat

    async def _stream(self, call: httpx.Request, read: Callable[[str, int, LiveTrace], None], live: LiveTrace) -> None:
        """Fill ``live`` from the reply; raise StreamFault or an httpx error if it is not a good one."""
        response = await self._http.send(call, stream=True)
        try:
            live.status_code = response.status_code
            if response.status_code != 200 or "text/event-stream" not in response.headers.get("content-type", ""):
                raise not_a_stream(response.status_code, await response.aread())
            parser = SseParser()
            blocks = response.aiter_raw()
            async for block in blocks:
                at_ns = time.perf_counter_ns()
                if live.first_byte_ns is None:
                    live.first_byte_ns = at_ns
                for event in parser.feed(block):
                    if event.data == "[DONE]":
                        live.end_ns = at_ns
                        break
                    live.events += 1
                    read(event.data, at_ns, live)
                if live.end_ns is not None:
                    break
            judge(live)
            # Reading the last bytes lets the connection serve the next request; they cannot fail us.
            with contextlib.suppress(TimeoutError, httpx.HTTPError):
                async with asyncio.timeout(_TAIL_S):
                    async for _ in blocks:
                        pass
        finally:
            await response.aclose()


def _classify(error: httpx.HTTPError) -> RequestError:
    """Which class of failure an exception of the transport is."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return RequestError.CONNECT
    if isinstance(error, httpx.TimeoutException):
        return RequestError.STALLED
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
        return RequestError.CLOSED
    return RequestError.BAD_REPLY
