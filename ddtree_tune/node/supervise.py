"""Runs one command and never outlives its owner: ``python -m ddtree_tune.node.supervise CMD…``.

The owner holds the write end of our stdin. When it closes, because the owner asked or because it
died in any way, the command's whole process tree gets SIGTERM, a grace time, then SIGKILL.
Descendants that lose their parent are adopted by this process, so none slips away, and the command
is killed by the kernel should this process die itself.

The command's exit code is in the file that EXIT_VARIABLE names as soon as it ends, for its descendants
may take their time to follow.

It stays in its owner's process group: Ray kills the group of a worker that dies, a new session
would escape that. Standard library only, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_VARIABLE = "DDTREE_TUNE_STOP_GRACE_S"
EXIT_VARIABLE = "DDTREE_TUNE_EXIT_FILE"


def descendants(root: int) -> list[int]:
    """Process ids of all living descendants of ``root``, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    stack = [root]
    while stack:
        below = children.get(stack.pop(), [])
        found += below
        stack += below
    return found


def _prctl(option: int, value: int) -> None:
    """Call prctl(2) where it exists; elsewhere the owner's pipe is the only guard."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _tell(path: Path, code: int) -> None:
    """Leave the exit code where the owner looks, whole or not at all."""
    beside = path.with_suffix(".part")
    beside.write_text(str(code))
    beside.replace(path)


def _reap() -> None:
    """Collect adopted children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def end_tree(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM everything below this process, wait, SIGKILL what is left."""
    _signal_all(descendants(os.getpid()), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and (child.poll() is None or descendants(os.getpid())):
        if child.poll() is not None:
            _reap()
        time.sleep(0.02)
    while left := descendants(os.getpid()):
        _signal_all(left, signal.SIGKILL)
        child.poll()
        if child.returncode is not None:
            _reap()
        time.sleep(0.02)


def main(argv: list[str]) -> int:
    """Run ``argv`` until it ends or stdin closes; return its exit code, signals as 128 + n."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
    )
    owner_lives = True
    ends = [os.pidfd_open(child.pid)] if sys.platform == "linux" else []  # readable at once when it ends
    while child.poll() is None and owner_lives and not asked:
        readable, _, _ = select.select([0, *ends], [], [], 0.1)
        owner_lives = 0 not in readable or bool(os.read(0, 4096))
    if child.poll() is not None and (path := os.environ.get(EXIT_VARIABLE)):
        _tell(Path(path), child.returncode)
    end_tree(child, float(os.environ.get(GRACE_VARIABLE, "5")))
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
