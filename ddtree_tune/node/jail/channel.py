"""Messages between the two sides, one JSON object per line.

A line counts only if it begins with the run's nonce: what a program happens to write to the
descriptor is no message. The nonce is no secret from the program, which could only use it to
return a value, and that it may do anyway.
"""

from __future__ import annotations

import json
import os
from typing import Any

MAX_BYTES = 64 << 20
"""Longest message."""


class GoneError(Exception):
    """The other side has closed the channel."""


class GarbledError(Exception):
    """The other side sent something that is no message."""


class Channel:
    """One end of a socket pair."""

    def __init__(self, descriptor: int, nonce: str) -> None:
        self._descriptor = descriptor
        self._prefix = nonce.encode() + b" "
        self._lines = os.fdopen(os.dup(descriptor), "rb", buffering=1 << 16)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, lone surrogates and all.

        Raises:
            ValueError: the message is too long.
            GoneError: nobody reads.
        """
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        data = memoryview(self._prefix + text.encode("utf-8", "surrogatepass") + b"\n")
        if len(data) > MAX_BYTES:
            raise ValueError(f"a value must be at most {MAX_BYTES} bytes, but got {len(data)}")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except (BrokenPipeError, ConnectionResetError):
            raise GoneError from None

    def receive(self) -> dict[str, Any]:
        """Wait for the next message.

        Raises:
            GarbledError: it is not one.
            GoneError: none will come.
        """
        while True:
            try:
                line = self._lines.readline(MAX_BYTES)
            except ConnectionResetError:
                raise GoneError from None
            if not line:
                raise GoneError
            if line.startswith(self._prefix):
                break
        try:
            message = json.loads(line[len(self._prefix) :].decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise GarbledError(f"{type(error).__name__} in a message") from None
        if not isinstance(message, dict):
            raise GarbledError("a message must be an object")
        return message
