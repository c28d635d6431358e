"""How each endpoint's stream fills a `LiveTrace`, and what a stream may not do.

Knows the replies and no transport: the client brings the events and their arrival times.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ddtree_tune.core.sse import SseParser
from ddtree_tune.core.trace import RequestError
from ddtree_tune.node.replies import ChatChunk, GenerateChunk, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddtree_tune.node.live import LiveTrace

DETAIL_CHARS = 500
"""Longest piece of a server's words that a record keeps."""
_STATUS = {429: RequestError.HTTP_429, 503: RequestError.HTTP_503}

Chunk = TypeVar("Chunk", ChatChunk, GenerateChunk)
_CHAT = msgspec.json.Decoder(ChatChunk)
_GENERATE = msgspec.json.Decoder(GenerateChunk)


class StreamFault(Exception):  # noqa: N818  # not an error of ours: it becomes a field of the trace
    """A request that failed, on its way to the trace."""

    def __init__(self, error: RequestError, detail: str) -> None:
        super().__init__(detail)
        self.error = error
        self.detail = detail[:DETAIL_CHARS]


def read_chat(data: str, at_ns: int, live: LiveTrace) -> None:
    """Take one event of the chat endpoint."""
    chunk = _parse(_CHAT, data)
    if chunk.error is not None or chunk.object == "error":
        raise StreamFault(RequestError.STREAM_ERROR, json.dumps(chunk.error or chunk.message))
    with_text = False
    for choice in chunk.choices:
        text, reasoning = choice.delta.content or "", choice.delta.reasoning_content or choice.delta.reasoning or ""
        live.chunk(at_ns, text, reasoning)
        with_text = with_text or bool(text or reasoning)
        live.finish_reason = choice.finish_reason or live.finish_reason
    if chunk.usage is not None:
        live.count(chunk.usage.completion_tokens, with_text=with_text)
        _prompt_counts(chunk.usage, live)
    if chunk.sglext is not None:
        live.spec = chunk.sglext.counters() or live.spec


def _prompt_counts(usage: Usage, live: LiveTrace) -> None:
    """Take the prompt's counts where a chunk carries them."""
    if usage.prompt_tokens is not None:
        live.prompt_tokens = usage.prompt_tokens
    if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
        live.cached_tokens = usage.prompt_tokens_details.cached_tokens


def read_generate(data: str, at_ns: int, live: LiveTrace) -> None:
    """Take one event of the native endpoint, whose text is cumulative."""
    chunk = _parse(_GENERATE, data)
    if chunk.error is not None:
        raise StreamFault(RequestError.STREAM_ERROR, json.dumps(chunk.error))
    before = "".join(live.text)
    if not chunk.text.startswith(before):
        raise StreamFault(
            RequestError.BAD_REPLY,
            "/generate must stream the text so far, but got increments; leave --incremental-streaming-output out",
        )
    new = chunk.text[len(before) :]
    meta = chunk.meta_info
    live.text = [before]
    live.chunk(at_ns, new, "")
    live.count(meta.completion_tokens, with_text=bool(new))
    live.prompt_tokens = live.prompt_tokens if meta.prompt_tokens is None else meta.prompt_tokens
    live.cached_tokens = live.cached_tokens if meta.cached_tokens is None else meta.cached_tokens
    live.spec = meta.counters() or live.spec
    if meta.finish_reason is not None:
        live.finish_reason = meta.finish_reason.type


def _parse(decoder: msgspec.json.Decoder[Chunk], data: str) -> Chunk:
    """Narrow one event, or say what is wrong with it."""
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise StreamFault(RequestError.BAD_REPLY, f"{error} in {data[:200]!r}") from error


class StreamReader:
    """Fills a `LiveTrace` from one reply as its bytes come."""

    def __init__(self, read: Callable[[str, int, LiveTrace], None], live: LiveTrace) -> None:
        """Set up.

        Args:
            read: takes one event of the endpoint's stream.
            live: is filled.
        """
        self._read = read
        self._live = live
        self._parser = SseParser()
        self._is_stream = False
        self._page: list[bytes] = []

    @property
    def done(self) -> bool:
        """Whether the end marker has come."""
        return self._live.end_ns is not None

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Take the status and the headers, names in lower case."""
        self._live.status_code = status
        self._is_stream = status == 200 and "text/event-stream" in headers.get("content-type", "")

    def body(self, content: bytes, at_ns: int) -> None:
        """Take the next content and its arrival.

        Raises:
            StreamFault: an event is not what the endpoint may send.
        """
        if not self._is_stream:
            self._page.append(content)
            return
        live = self._live
        if live.first_byte_ns is None:
            live.first_byte_ns = at_ns
        for event in self._parser.feed(content):
            if event.data == "[DONE]":
                live.end_ns = at_ns
                return
            self._read(event.data, at_ns, live)

    def end(self) -> None:
        """Judge the whole reply.

        Raises:
            StreamFault: it is no event stream, or not a whole one.
        """
        if not self._is_stream:
            raise not_a_stream(self._live.status_code or 0, b"".join(self._page))
        judge(self._live)


def judge(live: LiveTrace) -> None:
    """Refuse a stream that ended well by HTTP and holds no whole reply."""
    if live.end_ns is None and live.first_byte_ns is not None:
        raise StreamFault(RequestError.NO_END, "the stream ended without [DONE]")
    if not live.chunk_ns:
        raise StreamFault(RequestError.EMPTY, "a 200 reply without any text")
    if live.finish_reason == "abort":
        raise StreamFault(RequestError.STREAM_ERROR, "the server aborted the request")


def not_a_stream(status: int, body: bytes) -> StreamFault:
    """Classify a reply that is not an event stream."""
    detail = body.decode("utf-8", errors="replace")
    if status != 200:
        kind = RequestError.HTTP_5XX if status >= 500 else RequestError.HTTP_4XX
        return StreamFault(
            _STATUS.get(status, kind if status >= 400 else RequestError.BAD_REPLY), f"{status}: {detail}"
        )
    if not detail.strip():
        return StreamFault(RequestError.EMPTY, "a 200 reply without a body")
    with contextlib.suppress(ValueError):
        reply = json.loads(detail)
        if isinstance(reply, dict) and "error" in reply:
            return StreamFault(RequestError.STREAM_ERROR, detail)
    return StreamFault(RequestError.BAD_REPLY, f"must be an event stream, but got {detail}")
