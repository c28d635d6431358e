"""What an engine's exit and last lines say about why it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddtree_tune.core.errors import FailureClass

_PATTERNS: tuple[tuple[str, FailureClass, FailureClass], ...] = (
    (
        r"address already in use|Errno 98|port \d+ is (already )?in use",
        FailureClass.PORT_CONFLICT,
        FailureClass.PORT_CONFLICT,
    ),
    (
        r"out of memory|OutOfMemoryError|MemoryError|Not enough memory",
        FailureClass.STARTUP_OOM,
        FailureClass.OOM_RUNTIME,
    ),
    (
        r"unrecognized arguments|: error: |invalid choice|^ValueError:",
        FailureClass.INVALID_CONFIG,
        FailureClass.CRASH_REQUEST,
    ),
)
"""Log pattern, class before the server was ready, class afterwards; the first that matches counts."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an engine ended."""

    failure: FailureClass
    reason: str


def classify(log_tail: str, exit_code: int | None, *, ready: bool) -> Fault:
    """Name the reason why an engine process ended.

    Args:
        log_tail: its last lines.
        exit_code: of the process; negative for a signal, None if it is not known.
        ready: whether it had been ready.

    Returns:
        The class and one sentence; the line that decided, or the last line of the log.
    """
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    how = f"signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"exit code {exit_code}"
    for pattern, before, after in _PATTERNS:
        for line in reversed(lines):
            if re.search(pattern, line):
                return Fault(after if ready else before, f"the server ended with {how}: {line[-300:]}")
    last = f": {lines[-1][-300:]}" if lines else " and an empty log"
    failure = FailureClass.CRASH_REQUEST if ready else FailureClass.STARTUP_CRASH
    return Fault(failure, f"the server ended with {how}{last}")
