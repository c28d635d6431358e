"""Server-sent events from bytes, however the network cuts them.

The parser is incremental: any split of the same bytes gives the same events, also inside a
UTF-8 sequence or between the two characters of a line end. An event counts once its blank line
has come; what a broken connection leaves half-written is never an event.

Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
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
        if not chunk:
            return []
        buffer = self._rest + chunk
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
        self._after_cr = buffer.endswith(b"\r") or (self._after_cr and not buffer)
        *lines, self._rest = _LINE_END.split(buffer)
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: bytes) -> SseEvent | None:
        """Apply one line; a blank one completes an event if there is data."""
        if not line:
            data, kind = self._data, self._kind
            self._data, self._kind = [], b""
            if not data:
                return None
            return SseEvent(_text(b"\n".join(data)), _text(kind) or "message")
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value
        return None


def _text(data: bytes) -> str:
    """Decode as the standard asks: malformed bytes become U+FFFD."""
    return data.decode("utf-8", errors="replace")
