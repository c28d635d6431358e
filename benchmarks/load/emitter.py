"""A server that only sends: chat chunks at a known rate, each with the time at which it left.

A process of its own that costs little beside the client which it measures: the bytes of a chunk are
made beforehand, all but its stamp and its count. Its surface is SGLang's chat stream with continuous
usage, the counts once more at the end, and the end marker; ``GET /truth`` says what was sent when.
The stamps are ``time.perf_counter_ns``, one clock for every process of a machine.

A server verifies all its requests in one step, so their chunks leave together: that is how this one
sends. ``--spread`` gives every stream a moment of its own instead.

    python -m benchmarks.load.emitter --gap-ms 20 --tokens 4
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import os
import time

from ddtree_tune.node import loops

MODEL = "emitter"
PROMPT_TOKENS = 60
WORD = " word"
"""A token of the built-in pair's tokenizer, alone and in a row: tools that count by themselves count right."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, modulo 1, spread any number of streams evenly."""


def chunked(data: bytes) -> bytes:
    """One chunk of HTTP/1.1."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(**fields: object) -> bytes:
    """One event of the chat stream."""
    head = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": MODEL}
    return b"data: " + json.dumps(head | fields, separators=(",", ":")).encode() + b"\n\n"


def choice(delta: dict[str, object], finish_reason: str | None = None) -> list[dict[str, object]]:
    """The one alternative of a chunk, with all that SGLang says beside the text."""
    rest = {"logprobs": None, "finish_reason": finish_reason, "matched_stop": None}
    return [{"index": 0, "delta": {"role": None, "reasoning_content": None, "tool_calls": None} | delta} | rest]


def usage(done: int) -> dict[str, object]:
    """Counts after so many tokens."""
    counts = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + done, "completion_tokens": done}
    return counts | {"prompt_tokens_details": {"cached_tokens": 0}, "reasoning_tokens": 0}


class Chunks:
    """The bytes of one kind of reply: one chunk for each step of some tokens."""

    def __init__(self, tokens: int, total: int) -> None:
        self.counts = [min(done + tokens, total) for done in range(0, total, tokens)]
        stamp = "0" * 19
        self.parts = []
        for at, done in enumerate(self.counts):
            text = WORD * (done - (self.counts[at - 1] if at else 0))
            data = chunked(event(choices=choice({"content": text}), usage=usage(done), sent_ns=stamp))
            self.parts.append(data.split(stamp.encode()))
        closing = event(choices=choice({}, "length")) + event(choices=[], usage=usage(total)) + b"data: [DONE]\n\n"
        self.closing = chunked(closing) + b"0\r\n\r\n"
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.opening = head.encode() + chunked(event(choices=choice({"role": "assistant", "content": ""})))


class Emitter:
    """What is sent, how fast, and what has been sent so far."""

    def __init__(self, gap_s: float, tokens: int, *, spread: bool) -> None:
        self.gap_s = gap_s
        self.tokens = tokens
        self.spread = spread
        self.streams = 0
        self.records: list[dict[str, object]] = []
        self._chunks: dict[int, Chunks] = {}

    def chunks(self, total: int) -> Chunks:
        """A reply of so many tokens; its bytes are made once."""
        if total not in self._chunks:
            self._chunks[total] = Chunks(self.tokens, total)
        return self._chunks[total]

    def first_due(self, now: float) -> float:
        """The next step that is at least one gap away."""
        phase = self.streams * GOLDEN % 1 if self.spread else 0.0
        self.streams += 1
        return (math.ceil(now / self.gap_s - phase) + 1 + phase) * self.gap_s


class Connection(asyncio.Protocol):
    """One client; its requests come one after another."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.loop = asyncio.get_running_loop()
        self.received = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length:")
        size = int(length.split(b"\r\n")[0] or b"0")
        if end and len(body) >= size:
            self.received = body[size:]
            self.answer(head.split(b" ")[1].decode(), body[:size])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the protocol's name
        """See ``asyncio.Protocol``."""
        if self.timer is not None:
            self.timer.cancel()

    def answer(self, path: str, body: bytes) -> None:
        """Answer one request."""
        if path == "/v1/chat/completions":
            self.stream(json.loads(body))
        elif path == "/v1/models":
            self.whole(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32768}]})
        elif path == "/truth":
            self.whole(200, {"cpu_s": time.process_time(), "requests": self.emitter.records})
        elif path == "/server_info":
            self.whole(200, {"internal_states": [{"avg_spec_accept_length": float(self.emitter.tokens)}]})
        elif path == "/health":
            self.whole(200, {})
        else:
            self.whole(404, {"detail": "Not Found"})

    def whole(self, status: int, reply: object) -> None:
        """Answer with JSON."""
        data = json.dumps(reply).encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self.transport.write(head.encode() + data)

    def stream(self, request: dict) -> None:
        """Send the first, empty chunk at once and each other one on its step."""
        chunks = self.emitter.chunks(request.get("max_completion_tokens") or request["max_tokens"])
        prompt = json.dumps(request["messages"])
        record = {"prompt_sha": hashlib.sha256(prompt.encode()).hexdigest()[:16], "counts": chunks.counts}
        sent_ns: list[int] = []
        self.emitter.records.append(record | {"received_ns": time.perf_counter_ns(), "sent_ns": sent_ns})
        self.transport.write(chunks.opening)
        self.due = self.emitter.first_due(self.loop.time())
        self.timer = self.loop.call_at(self.due, self.step, chunks, sent_ns)

    def step(self, chunks: Chunks, sent_ns: list[int]) -> None:
        """Send the next chunk, stamped as it leaves."""
        before, after = chunks.parts[len(sent_ns)]
        now_ns = time.perf_counter_ns()
        sent_ns.append(now_ns)
        self.transport.write(b"%b%019d%b" % (before, now_ns, after))
        if len(sent_ns) == len(chunks.counts):
            self.transport.write(chunks.closing)
        else:
            self.due += self.emitter.gap_s
            self.timer = self.loop.call_at(self.due, self.step, chunks, sent_ns)


async def serve(emitter: Emitter, port: int) -> None:
    """Listen and say where."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(emitter), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--port", type=int, default=0, help="of 127.0.0.1; printed once it listens")
    arguments.add_argument("--gap-ms", type=float, default=20.0, help="between two chunks of a stream")
    arguments.add_argument("--tokens", type=int, default=4, help="of each chunk")
    arguments.add_argument("--spread", action="store_true", help="streams send at moments of their own")
    arguments.add_argument("--core", type=int, help="run on this core alone")
    given = arguments.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    loops.run(serve(Emitter(given.gap_ms / 1000, given.tokens, spread=given.spread), given.port))
