"""Replies that a server's framework would not send, byte by byte over a real socket."""

import asyncio
import contextlib
import time

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.trace import Phase, RequestError
from ddtree_tune.node import loops
from ddtree_tune.node.client import ChatRequest, EngineClient
from ddtree_tune.node.live import user
from ddtree_tune.node.wire import Address, Wire

EVENTS = (
    b'data: {"choices": [{"delta": {"content": "h\xc3\xa9"}}], "usage": {"completion_tokens": 2}}\n\ndata: [DONE]\n\n'
)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def reply_with(*pieces, pause_s=0.0, hold=False, requests=None, run=loops.run, busy_s=0.0):
    """Ask a server that answers with these bytes and closes; ``busy_s``: the loop is held up before each."""

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        if requests is not None:
            requests.append((head, body))
        for piece in pieces:
            time.sleep(busy_s)  # noqa: ASYNC251  # that is the point
            writer.write(piece)
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        if hold:
            await reader.read()  # until the client leaves

    async def once():
        left = asyncio.Event()

        async def serve(reader, writer):
            with contextlib.suppress(ConnectionError):
                await answer(reader, writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            left.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/prefix/"
            async with EngineClient(Endpoint(url, "m", api_key="key"), timeout_s=3, stall_s=0.5) as client:
                request = ChatRequest(user("hello"), max_tokens=2)
                trace = await client.chat(request, request_id="r", phase=Phase.WINDOW, family="words")
            await left.wait()
        return trace

    return run(once())


def chunked(*contents):
    framed = b"".join(b"%x\r\n%s\r\n" % (len(content), content) for content in contents)
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


LENGTH = OK + b"Content-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS
TO_THE_END = OK + b"\r\n" + EVENTS
every_framing = pytest.mark.parametrize(
    "reply",
    [
        chunked(EVENTS),
        chunked(EVENTS[:3], EVENTS[3:50], EVENTS[50:]),
        chunked(EVENTS)
        .replace(b"\r\ndata", b";name=value\r\ndata")
        .replace(b"0\r\n\r\n", b"0\r\nChecked: yes\r\n\r\n"),
        LENGTH,
        TO_THE_END,
        b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH,
        b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + chunked(EVENTS),
        LENGTH + b"what comes after it",
        LENGTH + b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + EVENTS,
    ],
)


@every_framing
def test_every_framing_of_a_reply_is_read(reply):
    trace = reply_with(reply)
    assert trace.ok, trace.error_detail
    assert (trace.text, trace.completion_tokens) == ("hé", 2)


@every_framing
def test_a_reply_in_single_bytes_is_the_same_reply(reply):
    trace = reply_with(*[reply[at : at + 1] for at in range(len(reply))])
    assert trace.ok, trace.error_detail
    assert (trace.text, trace.completion_tokens) == ("hé", 2)


def test_the_end_marker_ends_the_request_though_the_connection_stays():
    start = time.perf_counter()
    assert reply_with(OK + b"\r\n" + EVENTS, hold=True).ok
    assert time.perf_counter() - start < 0.4


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", RequestError.CLOSED),
        (b"HTTP/1.1 200 OK\r\nContent-Ty", RequestError.CLOSED),
        (chunked(EVENTS)[:-60], RequestError.CLOSED),
        (LENGTH[:-40], RequestError.CLOSED),
        (TO_THE_END[:-20], RequestError.NO_END),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", RequestError.BAD_REPLY),
        (OK + b"Content-Length: many\r\n\r\n", RequestError.BAD_REPLY),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", RequestError.BAD_REPLY),
        (b"HTTP/2 200\r\n\r\n", RequestError.BAD_REPLY),
        (b"x" * 70_000, RequestError.BAD_REPLY),
        (OK + b"X-More: header\r\n" * 5_000, RequestError.BAD_REPLY),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-4\r\nabcd\r\n", RequestError.BAD_REPLY),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n", RequestError.BAD_REPLY),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", RequestError.BAD_REPLY),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi!\n", RequestError.BAD_REPLY),
    ],
)
def test_a_broken_reply_has_its_class(reply, error):
    trace = reply_with(reply)
    assert trace.error is error
    assert trace.error_detail


def test_what_came_before_the_fault_stays():
    first, _, rest = EVENTS.partition(b"data: [DONE]")
    trace = reply_with(chunked(first, rest).replace(b"0\r\n\r\n", b"oops\r\n"))
    assert trace.error is RequestError.BAD_REPLY
    assert (trace.text, trace.completion_tokens, trace.error_at_chunk) == ("hé", 2, 1)


@pytest.mark.parametrize("reply", [b"", OK, chunked(EVENTS)[:120]])
def test_silence_is_a_stall_wherever_it_begins(reply):
    start = time.perf_counter()
    trace = reply_with(reply, hold=True)
    assert trace.error is RequestError.STALLED
    assert 0.5 <= time.perf_counter() - start < 1.5


def test_a_reply_that_trickles_is_no_stall():
    reply = chunked(EVENTS)
    third = len(reply) // 3
    pieces = (reply[:third], reply[third : 2 * third], reply[2 * third :])
    assert reply_with(*pieces, pause_s=0.3).ok


def test_the_request_is_addressed_in_full():
    requests = []
    assert reply_with(LENGTH, requests=requests).ok
    head, body = requests[0]
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /prefix/v1/chat/completions HTTP/1.1"
    assert lines[1].startswith("Host: 127.0.0.1:")
    assert {"Connection: close", "Authorization: Bearer key", f"Content-Length: {len(body)}"} <= set(lines)


@pytest.mark.parametrize("run", [asyncio.run, loops.run])
def test_a_loop_that_was_held_up_reads_before_it_calls_a_stall(run):
    first, _, _ = EVENTS.partition(b"data: [DONE]")
    opening = OK + b"\r\n" + first
    trace = reply_with(opening, b"data: [DONE]\n\n", busy_s=0.6, pause_s=0.01, run=run)
    assert trace.ok, trace.error_detail


class Slow:
    """Notes when it is given what, and takes its time."""

    done = False

    def __init__(self, arrivals, calls):
        self.arrivals, self.calls = arrivals, calls

    def head(self, status, headers):
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")

    def body(self, content, at_ns):
        self.calls.append(time.perf_counter_ns())
        self.arrivals.append(at_ns)
        time.sleep(0.02)

    def end(self):
        self.done = True


async def exchanged(readers):
    """Each reader takes the same reply, which is there for all of them before the loop looks."""
    writers, connected = [], asyncio.Event()

    def answer(_, writer):
        writers.append(writer)
        if len(writers) == len(readers):
            connected.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        wires = [await Wire.open(address, connect_s=1, stall_s=5) for _ in readers]
        try:
            async with asyncio.TaskGroup() as group:
                for wire, reader in zip(wires, readers, strict=True):
                    group.create_task(wire.exchange(address, "/", {}, b"", reader=reader))
                await connected.wait()
                for writer in writers:
                    writer.write(LENGTH)
                time.sleep(0.02)  # noqa: ASYNC251  # the kernel delivers, the loop does not look
        finally:
            for end in [*wires, *writers]:
                end.close()


@pytest.mark.parametrize("run", [asyncio.run, loops.run])
def test_all_that_has_come_is_stamped_before_any_of_it_is_parsed(run):
    arrivals, calls = [], []
    run(exchanged([Slow(arrivals, calls) for _ in range(8)]))
    assert len(arrivals) == 8
    assert max(arrivals) < min(calls)


def test_an_error_of_our_own_is_raised_and_not_waited_for():
    class Broken(Slow):
        def body(self, content, at_ns):
            raise KeyError("ours")

    with pytest.raises(ExceptionGroup) as raised:
        loops.run(exchanged([Broken([], [])]))
    assert raised.group_contains(KeyError, match="ours")


def test_an_address_is_read_once_and_named_as_requests_name_it():
    assert Address.of("http://[::1]:30000/base/").authority == "[::1]:30000"
    assert Address.of("http://127.0.0.1/").authority == "127.0.0.1:80"
    secure, other = Address.of("https://one.example/v1"), Address.of("https://other.example")
    assert (secure.port, secure.prefix) == (443, "/v1")
    assert secure.tls is other.tls  # making a context holds a loop up for 50 ms
