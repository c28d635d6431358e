"""One HTTP/1.1 exchange whose reply is stamped as it arrives.

The load generator reads thousands of chunks a second and says when each came, so this path is
short: bytes are stamped in the event loop's own callback, before any of them is parsed. A batch
server sends to all its streams at one moment, and what a general client does with each chunk then
delays the stamps of the others (benchmarks/load).

A connection serves one request: none is ever reused while its server is closing it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

from ddtree_tune.core.chunked import BodyDecoder
from ddtree_tune.core.trace import RequestError
from ddtree_tune.node.stream import StreamFault

_LONGEST_HEAD = 65_536


class Block(NamedTuple):
    """Bytes that arrived together."""

    at_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    prefix: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, base_url: str) -> Address:
        """Read a base address such as ``http://127.0.0.1:30000``."""
        parts = urlsplit(base_url)
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), parts.path.rstrip("/"), tls)


class Wire(asyncio.Protocol):
    """A connection, its one request and its one reply."""

    def __init__(self, stall_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._stall_s = stall_s
        self._arrived: deque[Block] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._lost: str | None = None
        self._stalled = False
        self._last_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._decoder = BodyDecoder({})

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

    def send(self, address: Address, path: str, headers: dict[str, str], body: bytes) -> None:
        """Post a body; from here on the reply may not stall."""
        lines = {"Host": f"{address.host}:{address.port}", "Content-Length": str(len(body)), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in (lines | headers).items())
        if self._transport is not None:
            self._transport.write(f"POST {address.prefix}{path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        self._last_s = self._loop.time()
        self._timer = self._loop.call_later(self._stall_s, self._check)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the reply, names in lower case.

        Raises:
            StreamFault: there is no reply, or it is not HTTP.
        """
        data, at_ns = b"", 0
        while b"\r\n\r\n" not in data:
            block = await self._arrival()
            if block is None:
                raise StreamFault(RequestError.CLOSED, f"the connection ended before the reply{self._lost}")
            data, at_ns = data + block.data, block.at_ns
            if len(data) > _LONGEST_HEAD:
                raise StreamFault(RequestError.BAD_REPLY, f"must be an HTTP reply, but got {data[:80]!r}")
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        try:
            code = int(status[:3])
            headers = {
                name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            self._decoder = BodyDecoder(headers)
        except ValueError as error:
            raise StreamFault(RequestError.BAD_REPLY, f"must be an HTTP reply, but got {first[:80]!r}") from error
        if not version.startswith("HTTP/1."):
            raise StreamFault(RequestError.BAD_REPLY, f"must be an HTTP/1 reply, but got {first[:80]!r}")
        if rest:
            self._arrived.appendleft(Block(at_ns, rest))
        return await self.head() if code < 200 else (code, headers)

    async def read(self) -> Block | None:
        """The next content of the body, or None at its end.

        Raises:
            StreamFault: the connection ends inside the body, its framing breaks, or it stalls.
        """
        while not self._decoder.done:
            block = await self._arrival()
            if block is None:
                if self._decoder.ends_with_connection:
                    return None
                raise StreamFault(RequestError.CLOSED, f"the connection ended inside the reply{self._lost}")
            try:
                content = self._decoder.feed(block.data)
            except ValueError as error:
                raise StreamFault(RequestError.BAD_REPLY, str(error)) from error
            if content:
                return Block(block.at_ns, content)
        return None

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
        self._arrived.append(Block(time.perf_counter_ns(), data))
        self._last_s = self._loop.time()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._lost = f": {exc}" if exc else ""
        self._wake()

    async def _arrival(self) -> Block | None:
        """The next bytes as they came, or None when there will be no more."""
        while not self._arrived:
            if self._stalled:
                raise StreamFault(RequestError.STALLED, f"no byte for {self._stall_s:g} s")
            if self._lost is not None:
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._arrived.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check(self) -> None:
        """Judge the silence; the timer is set once per stall and not once per chunk."""
        left_s = self._last_s + self._stall_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check)
        else:
            self._stalled = True
            self._wake()
