"""What an engine's exit and last lines say about why it ended."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from ddtree_tune.core.errors import FailureClass

_PATTERNS: tuple[tuple[re.Pattern[str], FailureClass, FailureClass], ...] = (
    (
        re.compile(r"address already in use|Errno 98|[Pp]ort \d+ is (already )?in use"),
        FailureClass.PORT_CONFLICT,
        FailureClass.PORT_CONFLICT,
    ),
    (
        re.compile(r"out of memory|OutOfMemoryError|MemoryError|Not enough memory"),
        FailureClass.STARTUP_OOM,
        FailureClass.OOM_RUNTIME,
    ),
    (
        re.compile(
            r"NCCL error|nccl\w*Error|ConnectionError|ConnectTimeout|ReadTimeout|HfHubHTTPError|LocalEntryNotFound"
        ),
        FailureClass.STARTUP_CRASH,
        FailureClass.CRASH_REQUEST,
    ),
    (re.compile(r"Capture .*graph failed"), FailureClass.CAPTURE_CRASH, FailureClass.CRASH_REQUEST),
    (
        re.compile(r"unrecognized arguments|: error: |invalid choice|^ValueError:"),
        FailureClass.INVALID_CONFIG,
        FailureClass.CRASH_REQUEST,
    ),
)
"""Log pattern, class before the server was ready, class afterwards; the first that matches counts."""
_NAMES_ITSELF = re.compile(r"^[\w.]*(Error|Exception)\b(: |$)")
"""The line of a traceback that says what it is."""
_KILLED = re.compile(r"exit code:? -9\b")
"""A scheduler that was killed from outside, as by a host that ran out of memory."""
_ASIDE = re.compile(r"resource_tracker|warnings\.warn\(|Warning:|\"(GET|POST) \S+ HTTP/")
"""What servers and interpreters write whatever becomes of them: never a reason."""
_TELLS = re.compile(r"crash|died|exception|error|fatal|kill|signal|watchdog", re.IGNORECASE)
"""A line of a server that ends itself, which SGLang does by SIGKILL."""
_OUTSIDE = "; that signal comes from outside: the kernel where memory is short (dmesg says so), or a person"
_RAISED = "hit an exception"
"""What a scheduler says before it has itself killed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an engine ended."""

    failure: FailureClass
    reason: str


def classify(log_tail: str, exit_code: int | None, *, ready: bool, phase: str = "", lost: bool = False) -> Fault:
    """Name the reason why an engine process ended.

    Args:
        log_tail: its last lines.
        exit_code: of the process; negative for a signal, None if it is not known.
        ready: whether it had been ready.
        phase: what it did last, by its log (see ``server_log``).
        lost: whether it still runs, and its log says that nothing more will come of it.

    Returns:
        The class and one sentence; the line that decided, or the last line of the log that is no routine.
    """
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    how = f"signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"exit code {exit_code}"
    ended = "the server is lost" if lost else f"the server ended with {how}"
    for pattern, before, after in _PATTERNS:
        for line in reversed(lines):
            if pattern.search(line):
                return Fault(after if ready else before, f"{ended}: {line[-300:]}")
    named = next((line for line in reversed(lines) if _NAMES_ITSELF.match(line)), None)
    telling = [line for line in lines if not _ASIDE.search(line)]
    last = named or (telling[-1] if telling else None)
    failure = FailureClass.CRASH_REQUEST if ready else FailureClass.STARTUP_CRASH
    was_killed = _KILLED.search(log_tail) and _RAISED not in log_tail
    if not ready and phase.startswith("capturing") and not was_killed:
        failure = FailureClass.CAPTURE_CRASH
    if exit_code == -signal.SIGKILL and not (last and _TELLS.search(last)):
        return Fault(failure, f"{ended}{_OUTSIDE}")
    return Fault(failure, f"{ended}: {last[-300:]}" if last else f"{ended} and a log that tells nothing")
