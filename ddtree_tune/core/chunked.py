"""The body of an HTTP/1.1 reply from its bytes, however the network cuts them.

Source: RFC 9112, sections 6 and 7.1.
"""

from __future__ import annotations

_LONGEST_LINE = 1024


class BodyDecoder:
    """Takes the framing off one body: chunked, of known length, or up to the end of the connection."""

    def __init__(self, headers: dict[str, str]) -> None:
        """Choose the framing.

        Args:
            headers: of the reply, names in lower case.

        Raises:
            ValueError: the length is not a number.
        """
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        self._left: int | None = None if self._chunked or length is None else int(length)
        self._line = b""
        self._trailer = False
        self.done = self._left == 0
        """Whether the body is complete by its own framing."""

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the end of the connection ends the body."""
        return not self._chunked and self._left is None

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes and return the content in them; what follows the body is dropped.

        Raises:
            ValueError: the framing is broken.
        """
        if self._chunked:
            return self._dechunk(data)
        if self._left is None:
            return data
        content = data[: self._left]
        self._left -= len(content)
        self.done = self._left == 0
        return content

    def _dechunk(self, data: bytes) -> bytes:
        """Follow the chunks: ``size CRLF content CRLF``, a chunk of size 0, trailer lines, a blank line."""
        content = []
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                content.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            end = data.find(b"\n", at)
            self._line += data[at:] if end < 0 else data[at : end + 1]
            at = len(data) if end < 0 else end + 1
            if len(self._line) > _LONGEST_LINE:
                raise ValueError(f"a chunk must begin with its size, but got {self._line[:80]!r}")
            if end >= 0:
                self._end_line(self._line.strip())
                self._line = b""
        return b"".join(content)

    def _end_line(self, line: bytes) -> None:
        """Act on a whole line: the end of a chunk's content, a size, or the trailer."""
        if self._trailer:
            self.done = not line
        elif self._left == 0:
            if line:
                raise ValueError(f"a chunk must end with a line end, but got {line[:80]!r}")
            self._left = None
        else:
            self._left = int(line.partition(b";")[0], 16)
            if self._left < 0:
                raise ValueError(f"a chunk's size must not be negative, but got {line[:80]!r}")
            self._trailer = self._left == 0
