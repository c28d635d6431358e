"""What one chunk costs in each part of the client, beside the libraries that were not taken.

Prints a Markdown table. The chunk is the emitter's, as it comes from the network.

    python -m benchmarks.load.parts
"""

from __future__ import annotations

import asyncio
import json
import timeit
from importlib.metadata import version
from typing import TYPE_CHECKING

import h11
import httptools
import pydantic

from benchmarks.load.emitter import Chunks
from ddtree_tune.core.sse import SseParser
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.live import LiveTrace
from ddtree_tune.node.stream import StreamReader, read_chat
from ddtree_tune.node.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS, REPEATS = 4_000, 7


class Delta(pydantic.BaseModel):
    """As strict as the structs of the package."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True)
    content: str | None = None
    reasoning_content: str | None = None


class Choice(pydantic.BaseModel):
    """As strict as the structs of the package."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True)
    delta: Delta
    finish_reason: str | None = None


class Usage(pydantic.BaseModel):
    """As strict as the structs of the package."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True)
    prompt_tokens: pydantic.NonNegativeInt | None = None
    completion_tokens: pydantic.NonNegativeInt | None = None


class Chunk(pydantic.BaseModel):
    """As strict as the structs of the package."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True)
    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None


class Body:
    """What httptools calls."""

    def on_body(self, content: bytes) -> None:
        """Take the content."""
        self.content = content


def framing_httptools(opening: bytes, chunk: bytes) -> Callable[[], object]:
    """Take the framing off with httptools."""
    parser = httptools.HttpResponseParser(Body())
    parser.feed_data(opening)
    return lambda: parser.feed_data(chunk)


def framing_h11(opening: bytes, chunk: bytes) -> Callable[[], object]:
    """Take the framing off with h11."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())

    def feed(data: bytes) -> None:
        connection.receive_data(data)
        while connection.next_event() is not h11.NEED_DATA:
            pass

    feed(opening)
    return lambda: feed(chunk)


def whole(opening: bytes, chunk: bytes) -> Callable[[], object]:
    """All that the package does with a chunk once the loop has read it."""
    wire = Wire(StreamReader(read_chat, live()), stall_s=60)
    wire.data_received(opening)
    wire._read()  # noqa: SLF001  # what the loop would call

    def take() -> None:
        wire.data_received(chunk)
        wire._read()  # noqa: SLF001

    return take


def live() -> LiveTrace:
    """An empty trace."""
    return LiveTrace("r", Phase.WINDOW, "words", "0" * 16)


async def main() -> None:
    """Measure; on a loop, which a wire belongs to."""
    chunks = Chunks(4, 512)
    before, after = chunks.parts[5]
    chunk = before + b"0" * 19 + after
    content = chunk.partition(b"\r\n")[2].removesuffix(b"\r\n")
    data = SseParser().feed(content)[0].data
    events, trace = SseParser(), live()
    rows = {
        ("framing", f"httptools {version('httptools')}"): framing_httptools(chunks.opening, chunk),
        ("framing", f"h11 {version('h11')}, not taken"): framing_h11(chunks.opening, chunk),
        ("event", "ours"): lambda: events.feed(content),
        ("JSON into a trace", f"msgspec {version('msgspec')}"): lambda: read_chat(data, 1, trace),
        ("JSON alone", f"pydantic {version('pydantic')}, not taken"): lambda: Chunk.model_validate_json(data),
        ("JSON alone", "json of Python, nothing checked, not taken"): lambda: json.loads(data),
        ("all", "ours"): whole(chunks.opening, chunk),
    }
    print("| part | by | us |\n|---|---|---|")
    for (part, by), call in rows.items():
        best_s = min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) / CALLS
        print(f"| {part} | {by} | {best_s * 1e6:.1f} |")


if __name__ == "__main__":
    asyncio.run(main())
