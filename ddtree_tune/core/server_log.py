"""Follows a server's log as it grows: what it does, whether it is lost, how its steps ran.

The lines are SGLang's (0.5.17 and 0.5.23; kept excerpts under tests/sglang/records). A log of
another form says nothing, which is never read as a fault.
"""

from __future__ import annotations

import re
from collections import deque

from ddtree_tune.core.engine import GraphUse

TAIL_LINES = 200
"""Kept of every failure: what is above is progress bars and arguments."""
_LONGEST_LINE = 2_000
"""SGLang prints all its arguments in one line of thousands of characters."""
_PHASES = (
    ("loading weights", re.compile(r"Load weight begin|Loading \w+ checkpoint|Multi-thread loading shards")),
    ("allocating memory", re.compile(r"Load weight end|KV Cache is allocated|Memory pool end")),
    ("capturing CUDA graphs", re.compile(r"Capture .*[Cc][Uu][Dd][Aa] graph begin|Capturing (batches|num tokens)")),
    ("warming up", re.compile(r"Uvicorn running on|Application startup complete")),
    ("ready", re.compile(r"The server is fired up and ready to roll")),
)
_FATAL = re.compile(
    r"(Scheduler|DetokenizerManager|TokenizerManager|DataParallelController) hit an exception"
    r"|Received sigquit from a child process|SIGQUIT received|crashed with exit code|Initialization failed\."
)
"""The front goes on answering for seconds after such a line and waits for crash dumps; nothing more comes of it."""
_ROUTINE = re.compile(r'"(GET|POST) (/health\S* |.* 200 OK$)')
"""Our own knocking at the door: it would push what matters out of the last lines."""
_DECODE = re.compile(r"Decode batch.*cuda graph: (True|False)")


class ServerLog:
    """What is known from the lines so far."""

    def __init__(self) -> None:
        self.phase = "starting"
        """What the server does now."""
        self.fatal: str | None = None
        """The first line after which the server is lost; None if there was none."""
        self.graphs = GraphUse()
        """How the decode steps ran that the log tells of."""
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._open = ""

    @property
    def tail(self) -> str:
        """The last lines, an unfinished one included."""
        lines = [*self._lines, *([_shown(self._open)] if self._open.strip() else [])]
        return "\n".join(lines[-TAIL_LINES:])

    def feed(self, text: str) -> None:
        """Take in what was appended to the log."""
        *lines, self._open = (self._open + text).split("\n")
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        shown = _shown(line)
        if not shown or _ROUTINE.search(shown):
            return
        self._lines.append(shown)
        self.phase = next((name for name, pattern in reversed(_PHASES) if pattern.search(shown)), self.phase)
        if self.fatal is None and _FATAL.search(shown):
            self.fatal = shown
        if decode := _DECODE.search(shown):
            graphed = decode.group(1) == "True"
            self.graphs = GraphUse(self.graphs.graphed + graphed, self.graphs.eager + (not graphed))


def _shown(line: str) -> str:
    """A line as a terminal leaves it: of a progress bar that redraws itself, the last state."""
    return line.rstrip("\r").rpartition("\r")[2].rstrip()[:_LONGEST_LINE]
