"""One request to one server, as a `RequestTrace`; the only user of httpx.

A server's fault never raises: it becomes the trace's error class, because a failed request is a
row. Tokens come from the server's own counts, never from chunks: with speculation one chunk holds
a whole verify step. Streams go over `Wire`, a connection each; everything else goes over httpx.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import httpx

from ddtree_tune.core.engine import Route
from ddtree_tune.core.errors import EngineError, SpecError, boundary
from ddtree_tune.core.thinking import opened
from ddtree_tune.core.trace import Phase, RequestError, RequestTrace
from ddtree_tune.node.live import ChatRequest, LiveTrace, Messages, user
from ddtree_tune.node.replies import charged, counted
from ddtree_tune.node.stream import DETAIL_CHARS, StreamFault, StreamReader, read_chat, read_generate
from ddtree_tune.node.template import chat_template
from ddtree_tune.node.wire import FRESH_S, Address, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddtree_tune.core.engine import Endpoint

__all__ = ["ChatRequest", "EngineClient", "user"]

_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}


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
        endpoint: Endpoint,
        *,
        timeout_s: float,
        stall_s: float,
        connect_s: float = 5.0,
    ) -> None:
        """Set up; no connection is made yet.

        Args:
            endpoint: the server, and through which door to ask it.
            timeout_s: most time for a whole request.
            stall_s: most time without a byte.
            connect_s: most time for a connection.

        Raises:
            SpecError: the address is none, or the endpoint's chat template cannot be used.
        """
        self._base_url = endpoint.base_url.rstrip("/")
        self._model = endpoint.served_model_name
        self._route = endpoint.route
        self._template = None if endpoint.template is None else chat_template(endpoint.template)
        self._timeout_s = timeout_s
        self._extensions = endpoint.extensions
        self._options = dict(endpoint.template_options)
        self._counting: _Counting | None = None
        self._ahead: asyncio.Task[Wire | None] | None = None
        self._is_quick = False
        """Whether the last request was over before a connection opened with it would have aged."""
        self._stall_s = stall_s
        self._connect_s = connect_s
        self._headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        try:
            self._address = Address.of(self._base_url)
            self._http = httpx.AsyncClient(
                base_url=self._base_url,
                headers=self._headers,
                # Without TLS a context would never be used, and it costs 50 ms to make one.
                verify=self._address.tls or False,
                trust_env=False,  # nothing between us and a measured server
                timeout=httpx.Timeout(timeout_s, connect=connect_s),
            )
        except (ValueError, httpx.InvalidURL) as error:
            raise SpecError(
                f"a server's address must be as in http://127.0.0.1:30000, but got {self._base_url}: {error}"
            ) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait([self._ahead])
            if not self._ahead.cancelled() and (wire := self._ahead.result()) is not None:
                wire.close()
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
        data = json.dumps(body).encode()
        live.sent_ns = time.perf_counter_ns()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._stream(path, data, read, live)
        except StreamFault as fault:
            return live.freeze(fault.error, fault.detail)
        except TimeoutError:
            return live.freeze(RequestError.TIMEOUT, f"no end within {self._timeout_s:g} s")
        return live.freeze()

    def opening(self, request: ChatRequest) -> str:
        """The tag of thinking that our prompt ends with: the reply to it begins inside, where no parser says so."""
        return "" if self._route is Route.CHAT else opened(self._native_prompt(request) or "")

    async def chat_once(self, request: ChatRequest) -> dict[str, Any]:
        """Ask without streaming; ``choices[0].meta_info`` holds SGLang's own counters.

        Raises:
            EngineError: the server failed or answered something that is not a reply.
        """
        path, body, _ = self._streamed(request)
        for name in ("stream_options", "return_spec_tokens_details"):
            body.pop(name, None)
        body["stream"] = False
        if request.messages is not None and self._extensions:
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
                with contextlib.suppress(EngineError):
                    extra = charged(reply) - await self._tokenize(path, key, messages)
                    if key == "prompt" or extra == 0:
                        return _Counting(path, key, extra)
        return _Counting()

    async def _tokenize(self, path: str, key: str, messages: Messages) -> int:
        value = messages[0]["content"] if key == "prompt" else [dict(message) for message in messages]
        body = {"model": self._model, key: value} | ({"add_special_tokens": False} if key == "prompt" else {})
        return counted(await self.post_json(path, body))

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
        prompt = self._native_prompt(request)
        if prompt is not None:
            sampling: dict[str, Any] = {
                "max_new_tokens": request.max_tokens,
                "temperature": request.temperature,
                "top_p": request.top_p,
                "ignore_eos": request.ignore_eos,
            }
            if request.seed is not None:
                sampling["sampling_seed"] = request.seed
            native = {"text": prompt, "sampling_params": sampling, "stream": True}
            return "/generate", native | dict(request.extra), read_generate
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [dict(message) for message in request.messages or ()],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.seed is not None:
            body["seed"] = request.seed
        if self._extensions:
            body["stream_options"]["continuous_usage_stats"] = True
            body["return_spec_tokens_details"] = True
            if request.ignore_eos:
                body["ignore_eos"] = True
            if self._options:
                body["chat_template_kwargs"] = self._options
        return "/v1/chat/completions", body | dict(request.extra), read_chat

    def _native_prompt(self, request: ChatRequest) -> str | None:
        """What ``/generate`` is asked; None for the chat endpoint."""
        if request.messages is None or self._route is Route.CHAT:
            return request.prompt
        if self._template is None:
            return "\n\n".join(message["content"] for message in request.messages)
        return self._template.render(request.messages, self._options)

    async def _stream(
        self, path: str, data: bytes, read: Callable[[str, int, LiveTrace], None], live: LiveTrace
    ) -> None:
        """Fill ``live`` from the reply; raise StreamFault if it is not a good one."""
        wire = await self._wire()
        try:
            live.sent_ns = time.perf_counter_ns()
            if self._is_quick:
                self._ahead = asyncio.create_task(self._open_ahead())
            reader = StreamReader(read, live)
            await wire.exchange(self._address, path, _HEADERS | self._headers, data, reader=reader)
        finally:
            wire.close()
            self._is_quick = (time.perf_counter_ns() - live.sent_ns) / 1e9 < FRESH_S

    async def _wire(self) -> Wire:
        """A connection for the next request: the one that was opened ahead, if it is still good."""
        ahead, self._ahead = self._ahead, None
        wire = await ahead if ahead is not None else None
        if wire is not None and wire.is_fresh:
            return wire
        if wire is not None:
            wire.close()
        return await Wire.open(self._address, connect_s=self._connect_s, stall_s=self._stall_s)

    async def _open_ahead(self) -> Wire | None:
        """A connection for the request after this one; whether it can be had matters only then."""
        with contextlib.suppress(StreamFault):
            return await Wire.open(self._address, connect_s=self._connect_s, stall_s=self._stall_s)
        return None
