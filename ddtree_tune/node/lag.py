"""How late this process sees what reaches it.

A thread writes a byte into a socket pair every 10 ms, and the event loop reads it through the same
kind of transport as its streams: the delay of the kernel, of the loop and of whatever holds the
interpreter in one figure, which CPU percent does not give. Lateness counts from the moment that a
probe was due, not from its writing: what holds up the thread holds up the streams too, and a hold
of 200 ms must give twenty late probes and not one (coordinated omission).
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Self

PERIOD_NS = 10_000_000
"""Between two probes."""


class LagProbe(asyncio.Protocol):
    """Lateness samples of the running event loop, taken while the context is open."""

    def __init__(self) -> None:
        self._late_ns: list[int] = []  # of the probes that were answered, in the order of their due times
        self._begin_ns = 0
        self._closed_ns: int | None = None
        self._over = threading.Event()

    async def __aenter__(self) -> Self:
        self._near, far = socket.socketpair()
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=far)
        self._begin_ns = time.perf_counter_ns() + PERIOD_NS
        self._thread = threading.Thread(target=self._send, name="lag-probe", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed_ns = time.perf_counter_ns()
        self._over.set()
        self._transport.abort()
        self._near.shutdown(socket.SHUT_RDWR)  # ends a write that nobody reads
        self._thread.join()
        self._near.close()

    def samples(self, start_ns: int, end_ns: int) -> tuple[int, ...]:
        """Lateness of the probes of one interval, one every 10 ms.

        Args:
            start_ns: ``time.perf_counter_ns`` of this process; a probe due then counts.
            end_ns: a probe due then does not count.

        Returns:
            Due time to arrival in ns. A probe without an answer counts with its age so far.
        """
        now_ns = self._closed_ns or time.perf_counter_ns()
        first, last = (max(0, self._number(min(at_ns, now_ns))) for at_ns in (start_ns, end_ns))
        answered = self._late_ns[first:last]
        waiting = range(first + len(answered), last)
        return (*answered, *(now_ns - self._due_ns(number) for number in waiting))

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        now_ns = time.perf_counter_ns()
        for _ in data:
            self._late_ns.append(now_ns - self._due_ns(len(self._late_ns)))

    def _due_ns(self, number: int) -> int:
        return self._begin_ns + number * PERIOD_NS

    def _number(self, at_ns: int) -> int:
        """The first probe that is due at this time or later."""
        return -((self._begin_ns - at_ns) // PERIOD_NS)

    def _send(self) -> None:
        """Write each probe once it is due, and all that are overdue at once."""
        sent = 0
        while not self._over.wait(max(0, self._due_ns(sent) - time.perf_counter_ns()) / 1e9):
            due = self._number(time.perf_counter_ns() + 1) - sent
            try:
                self._near.sendall(b"." * due)
            except OSError:
                return  # the loop has gone
            sent += due
