"""What every level of isolation shares: limits, a process that runs a program, and its end."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import select
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ddtree_tune.node.jail.candidate import FLAGS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

PACKAGE = str(Path(__file__).parents[2])
"""The folder that holds this package."""
PREFIX = os.path.realpath(sys.base_prefix)
"""Where the interpreter and its standard library are."""
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/nix/store")
"""What programs need of the system, to be read only."""
ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",  # an arena for each thread would eat the limit on memory
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
}
"""All that a program finds in its environment, with its folder as HOME."""
_INTERPRETER = os.path.realpath(sys.executable)
_UIDS = range(61184, 65520)
"""Users that nobody else is: systemd hands them out for a time."""
_USER_CAPABILITIES = 1 << 0 | 1 << 6 | 1 << 7
"""chown, setgid, setuid."""
_slots = itertools.count(os.getpid())
_END_S = 5.0
"""How long the kernel may take to remove what was killed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use."""

    cpu_s: float = 5.0
    """CPU time of one process, rounded up to whole seconds."""
    wall_s: float = 15.0
    """From start to verdict, tests included."""
    memory_bytes: int = 1 << 30
    """Address space of one process."""


class Inmate:
    """A process that runs a program."""

    def __init__(self, process: subprocess.Popen[bytes], init: int | None = None) -> None:
        """Take over a process.

        Args:
            process: ours.
            init: descriptor of the process whose end takes everything with it, if that is another.
        """
        self._process = process
        self._init = init

    def end(self, patience_s: float) -> int:
        """Wait for its own end so long, then kill it and all that it started.

        Returns:
            The signal that ended it as a negative number, or its exit code.
        """
        if not self._waited(patience_s):
            self._kill()
            if not self._waited(_END_S):
                self._process.kill()
                self._process.wait()
        if self._init is not None:
            # bwrap itself ends when the program does, its process space a moment later.
            self._kill()
            readable(self._init, _END_S)
            os.close(self._init)
            self._init = None
        code = self._process.returncode
        return code if code <= 128 else 128 - code

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._init is None:
                self._process.kill()
            else:
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def _waited(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None


class Cage(Protocol):
    """One level of isolation. It serves any number of threads."""

    @property
    def family(self) -> str:
        """Name of the level without what depends on the user."""
        ...

    @property
    def name(self) -> str:
        """Name of the level for the record."""
        ...

    def missing(self) -> str:
        """Why it cannot work here; empty if it may."""
        ...

    def inmate(self, channel: int, *, nonce: str, limits: Limits, errors: int) -> AbstractContextManager[Inmate]:
        """Start a process that waits for a program on ``channel``; it ends with the block.

        Args:
            channel: descriptor of its end of the channel.
            nonce: of the channel.
            limits: on the program.
            errors: descriptor that takes complaints of the sandbox itself.
        """
        ...


def readable(descriptor: int, seconds: float) -> bool:
    """Wait until there is something to read, or a process has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def bootstrap(module: str, package: str, *arguments: str) -> list[str]:
    """The command that runs one side of the jail, which lies in ``package``."""
    code = f"import sys; sys.path.insert(0, {package!r}); from ddtree_tune.node.jail.{module} import main; main()"
    return [_INTERPRETER, *FLAGS, "-c", code, *arguments]


def inmate_command(package: str, channel: int, nonce: str, limits: Limits, **changes: Any) -> list[str]:
    """The command that runs the program's side.

    Args:
        package: folder of this package, as the inmate sees it.
        channel: descriptor.
        nonce: of the channel.
        limits: on the program.
        changes: what else it must do to itself; see ``jail.candidate``.
    """
    orders = {
        "package": package,
        "channel": channel,
        "nonce": nonce,
        "cpu_s": math.ceil(limits.cpu_s),
        "memory_bytes": limits.memory_bytes,
        "processes": None,
        "parent": None,
        "uid": None,
        "landlock": False,
        "seccomp": False,
        "readable": [],
    }
    return bootstrap("candidate", package, json.dumps(orders | changes))


def free_uid() -> int:
    """A user for one inmate: two of them share no count of processes."""
    return _UIDS[next(_slots) % len(_UIDS)]


def may_change_user() -> bool:
    """Whether we are a root that may become another user, as a container's root may not be."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return os.geteuid() == 0
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    return held & _USER_CAPABILITIES == _USER_CAPABILITIES


def open_to_all(path: str) -> bool:
    """Whether every user can reach a folder."""
    return all(above.stat().st_mode & stat.S_IXOTH for above in (Path(path), *Path(path).parents))
