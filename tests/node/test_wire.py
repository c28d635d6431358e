"""Replies that a server's framework would not send, byte by byte over a real socket."""

import asyncio
import contextlib
import time

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.trace import Phase, RequestError
from ddtree_tune.node.client import ChatRequest, EngineClient
from ddtree_tune.node.live import user

EVENTS = (
    b'data: {"choices": [{"delta": {"content": "h\xc3\xa9"}}], "usage": {"completion_tokens": 2}}\n\ndata: [DONE]\n\n'
)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def reply_with(*pieces, pause_s=0.0, hold=False, requests=None):
    """Ask a server that answers with these bytes and closes."""

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        if requests is not None:
            requests.append((head, body))
        for piece in pieces:
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

    return asyncio.run(once())


def chunked(data):
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


LENGTH = OK + b"Content-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS
TO_THE_END = OK + b"\r\n" + EVENTS


@pytest.mark.parametrize("reply", [chunked(EVENTS), LENGTH, TO_THE_END, b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH])
def test_every_framing_of_a_reply_is_read(reply):
    trace = reply_with(reply)
    assert trace.ok, trace.error_detail
    assert (trace.text, trace.completion_tokens) == ("hé", 2)


def test_a_reply_in_single_bytes_is_the_same_reply():
    reply = chunked(EVENTS)
    trace = reply_with(*[reply[at : at + 1] for at in range(len(reply))])
    assert trace.ok, trace.error_detail
    assert trace.text == "hé"


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
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", RequestError.BAD_REPLY),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi!\n", RequestError.BAD_REPLY),
    ],
)
def test_a_broken_reply_has_its_class(reply, error):
    trace = reply_with(reply)
    assert trace.error is error
    assert trace.error_detail


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
