"""The connection of a client's next request is opened ahead, and only used while it is good."""

import asyncio
import contextlib
import itertools

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.client import ChatRequest, EngineClient
from ddtree_tune.node.live import user

REPLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices": [{"delta": {"content": "word"}}], "usage": {"completion_tokens": 1}}\n\ndata: [DONE]\n\n'
)


class Counting:
    """A server that answers each request and counts connections."""

    def __init__(self, *, patience_s=None):
        self.opened = 0
        self.used = 0
        self.open_now = 0
        self._patience_s = patience_s
        """How long it keeps a connection that sends nothing."""

    async def serve(self, reader, writer):
        self.opened += 1
        self.open_now += 1
        with contextlib.suppress(asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            async with asyncio.timeout(self._patience_s):
                head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            self.used += 1
            await asyncio.sleep(0.02)
            writer.write(REPLY)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.open_now -= 1


def asked(server, requests, *, pause_s=0.0):
    """Ask so many times, one after the other, over one client."""

    async def all_of_them():
        async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            traces = []
            async with EngineClient(Endpoint(url, "m"), timeout_s=5, stall_s=2) as client:
                for number in range(requests):
                    request = ChatRequest(user("hello"), max_tokens=1)
                    traces.append(await client.chat(request, request_id=str(number), phase=Phase.WINDOW, family="f"))
                    await asyncio.sleep(pause_s)
            for _ in range(100):
                if not server.open_now:
                    break
                await asyncio.sleep(0.01)
        return traces

    return asyncio.run(all_of_them())


def test_each_request_has_a_connection_of_its_own_and_none_is_left():
    server = Counting()
    traces = asked(server, 6)
    assert all(trace.ok for trace in traces)
    assert server.used == 6
    assert 6 <= server.opened <= 7
    assert server.open_now == 0


def test_a_request_does_not_wait_for_its_connection():
    traces = asked(Counting(), 6)
    gaps = [after.sent_ns - before.end_ns for before, after in itertools.pairwise(traces[1:])]
    assert sorted(gaps)[len(gaps) // 2] < 20e6


def test_a_connection_that_the_server_gave_up_is_replaced():
    server = Counting(patience_s=0.05)
    traces = asked(server, 4, pause_s=0.2)
    assert [trace.error for trace in traces] == [None] * 4
    assert server.used == 4
    assert server.opened > 6
    assert server.open_now == 0
