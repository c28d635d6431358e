"""One HTTP/1.1 exchange whose reply is stamped as it arrives.

The load generator reads thousands of chunks a second and says when each came, so this path is
short: the loop's callback stamps bytes and does nothing else; all streams that have something to
read are stamped before the first of them is parsed. A batch server sends to all its streams at one
moment, and what a general client does with each chunk then delays the stamps of the others. No
task wakes for a chunk either: one wakes at the end of the reply.

Measured (benchmarks/load): httptools takes the framing off a chunk in 0.3 us, a decoder in Python
in 4 us, h11 in 10 us; a chunk costs a quarter of the CPU time that it costs through httpx.

A connection serves one request: none is ever reused while its server is closing it. It may be opened
ahead of its request, so that connecting does not keep a slot from its next one.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from functools import cache
from typing import Protocol, Self, cast
from urllib.parse import urlsplit

import httptools

from ddtree_tune.core.trace import RequestError
from ddtree_tune.node.stream import StreamFault

_LONGEST_HEAD = 65_536
FRESH_S = 4.0
"""No server that is known closes a connection so soon that has not had its request yet."""
_GRACE_S = 0.1
"""A loop that was held up first reads what has come meanwhile, and then calls it a stall."""


class Reader(Protocol):
    """Takes a reply; each method may raise StreamFault."""

    @property
    def done(self) -> bool:
        """Whether the reply is whole, though more may come."""
        ...

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Take the status and the headers, names in lower case."""
        ...

    def body(self, content: bytes, at_ns: int) -> None:
        """Take the next content and its arrival."""
        ...

    def end(self) -> None:
        """Judge the whole reply."""
        ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    prefix: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, base_url: str) -> Address:
        """Read a base address such as ``http://127.0.0.1:30000``.

        Raises:
            ValueError: its port or its host is none.
        """
        parts = urlsplit(base_url)
        tls = _certified() if parts.scheme == "https" else None
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), parts.path.rstrip("/"), tls)

    @property
    def authority(self) -> str:
        """Host and port as a request names them: an IPv6 address stands in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@cache
def _certified() -> ssl.SSLContext:
    """One context for all clients: making one costs 50 ms, and an open loop makes clients in its window."""
    return ssl.create_default_context()


class Wire(asyncio.Protocol):
    """A connection, its one request and its one reply."""

    def __init__(self, stall_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Exception | None] = self._loop.create_future()
        self._reader: Reader | None = None
        self._opened_s = self._loop.time()
        self._stall_s = stall_s
        self._arrived: list[tuple[int, bytes]] = []
        self._last_ns = 0
        self._lost: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._headers: dict[str, str] = {}
        self._status: int | None = None
        self._content: list[bytes] = []
        self._complete = False

    @classmethod
    async def open(cls, address: Address, *, connect_s: float, stall_s: float) -> Self:
        """Connect.

        Raises:
            StreamFault: nobody accepts within ``connect_s``.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_s):
                _, wire = await loop.create_connection(
                    lambda: cls(stall_s), address.host, address.port, ssl=address.tls
                )
        except TimeoutError as error:
            raise StreamFault(RequestError.CONNECT, f"no connection within {connect_s:g} s") from error
        except OSError as error:
            raise StreamFault(RequestError.CONNECT, f"{type(error).__name__}: {error}") from error
        return wire

    @property
    def is_fresh(self) -> bool:
        """Whether a connection that was opened ahead of its request is sure to be open still."""
        return self._lost is None and self._loop.time() - self._opened_s < FRESH_S

    async def exchange(
        self, address: Address, path: str, headers: dict[str, str], body: bytes, *, reader: Reader
    ) -> None:
        """Post a body and let the reader take the whole reply.

        Raises:
            StreamFault: there is no whole reply, it stalls, or the reader refuses it.
        """
        lines = {"Host": address.authority, "Content-Length": str(len(body)), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in (lines | headers).items())
        self._reader = reader
        if self._transport is not None:
            self._transport.write(f"POST {address.prefix}{path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        self._last_ns = time.perf_counter_ns()
        self._watch(self._stall_s)
        fault = await self._over
        if fault is not None:
            raise fault

    def close(self) -> None:
        """End the connection, whatever state it is in."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        # No isinstance: uvloop's transports do all that asyncio.Transport says and are none.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._last_ns = time.perf_counter_ns()
        self._arrived.append((self._last_ns, data))
        if len(self._arrived) == 1:
            self._loop.call_soon(self._read)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._lost = f": {exc}" if exc else ""
        self._loop.call_soon(self._read)

    def on_message_begin(self) -> None:
        """See ``httptools``: interim replies (1xx) come before the one, and anything may come after it."""
        if self._status is None:
            self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """See ``httptools``."""
        if self._status is None:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """See ``httptools``."""
        status = self._parser.get_status_code()
        if self._status is None and status >= 200:
            self._status = status

    def on_body(self, content: bytes) -> None:
        """See ``httptools``."""
        if not self._complete:
            self._content.append(content)

    def on_message_complete(self) -> None:
        """See ``httptools``."""
        self._complete = self._status is not None

    def _read(self) -> None:
        """Parse what has arrived, and end the exchange where the reply ends."""
        arrived, self._arrived = self._arrived, []
        if self._reader is None:  # lost ahead of its request; is_fresh says so
            return
        try:
            for at_ns, data in arrived:
                if not self._over.done():
                    self._take(self._reader, data, at_ns)
            if self._lost is not None and not self._over.done():
                self._finish(self._reader)
        except Exception as fault:  # noqa: BLE001  # raised where somebody waits for the reply
            self._end(fault)

    def _take(self, reader: Reader, data: bytes, at_ns: int) -> None:
        """Take the framing off some bytes and hand on what they hold."""
        headed, broken = self._status is not None, None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            broken = f"must be HTTP/1.1, but got {data[:80]!r}: {error}"
        if self._status is not None and not headed:
            reader.head(self._status, self._headers)
        if self._content:
            content, self._content = self._content, []
            reader.body(content[0] if len(content) == 1 else b"".join(content), at_ns)
        if self._status is None:
            self._head_bytes += len(data)
            if self._head_bytes > _LONGEST_HEAD:
                broken = f"must be an HTTP reply, but got a head of {self._head_bytes} bytes"
        if self._complete or reader.done:  # what follows is not ours to judge
            self._finish(reader)
        elif broken:
            raise StreamFault(RequestError.BAD_REPLY, broken)

    def _finish(self, reader: Reader) -> None:
        """Judge a reply after which nothing more is read."""
        if self._status is None:
            raise StreamFault(RequestError.CLOSED, f"the connection ended before the reply{self._lost}")
        framed = not self._headers.keys().isdisjoint(("content-length", "transfer-encoding"))
        if framed and not (self._complete or reader.done):
            raise StreamFault(RequestError.CLOSED, f"the connection ended inside the reply{self._lost}")
        reader.end()
        self._end(None)

    def _end(self, fault: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(fault)

    def _watch(self, after_s: float) -> None:
        self._timer = self._loop.call_later(after_s, self._check, self._loop.time() + after_s)

    def _check(self, due_s: float) -> None:
        """Judge the silence; the timer is set once per stall and not once per chunk."""
        left_s = self._stall_s - (time.perf_counter_ns() - self._last_ns) / 1e9
        late = self._loop.time() - due_s > _GRACE_S
        if left_s > 0 or late or self._arrived:
            self._watch(max(left_s, _GRACE_S / 2))
        else:
            self._end(StreamFault(RequestError.STALLED, f"no byte for {self._stall_s:g} s"))
