"""The best level: bubblewrap, with every name space of its own."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune.node.cage import (
    ENVIRONMENT,
    PREFIX,
    SYSTEM,
    Inmate,
    Limits,
    free_uid,
    inmate_command,
    may_change_user,
    open_to_all,
    readable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_JAIL = str(Path(__file__).parent / "jail")
_HOME = "/tmp"  # noqa: S108 - a private one, inside the sandbox
_FOLDERS = ("/dev/shm", _HOME)  # noqa: S108 - as above
_FOLDER_BYTES = 64 << 20
"""What a program may write to each of them."""
_KERNEL = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
_PROCESSES = 64 if _KERNEL >= (5, 14) else 1024
"""Processes and threads of one program; older kernels count all of the user's, in and outside."""
_START_S = 5.0
"""How long bwrap may take to name its first process."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """``bwrap``, as root or in a user name space, with or without /proc."""

    as_root: bool
    proc: bool
    """Some containers cannot mount it."""

    @property
    def family(self) -> str:
        """See ``Cage``."""
        return "bwrap"

    @property
    def name(self) -> str:
        """See ``Cage``."""
        return self.family

    def missing(self) -> str:
        """See ``Cage``."""
        if shutil.which("bwrap") is None:
            return "the program bwrap is not installed"
        if self.as_root:
            return "" if may_change_user() else "needs a root that may change its user"
        if os.geteuid() == 0 and not (may_change_user() and open_to_all(PREFIX)):
            return f"root cannot become another user, or {PREFIX} is closed to it"
        return ""

    @contextlib.contextmanager
    def inmate(self, channel: int, *, nonce: str, limits: Limits, errors: int) -> Iterator[Inmate]:
        """See ``Cage``."""
        uid = free_uid() if may_change_user() else None
        # As root the inmate changes its user itself, behind the mounts; else bwrap starts as that user.
        inside, outside = (uid, None) if self.as_root else (None, uid)
        inner = inmate_command("/jail", channel, nonce, limits, processes=_PROCESSES, uid=inside)
        info_out, info_in = os.pipe()
        try:
            process = subprocess.Popen(
                [*self._command(info_in), "--", *inner],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(channel, info_in),
                env={"PATH": ENVIRONMENT["PATH"]},
                cwd="/",
                user=outside,
                group=outside,
                extra_groups=None if outside is None else (),
            )
        except BaseException:
            os.close(info_out)
            raise
        finally:
            os.close(info_in)
        inmate = Inmate(process, _first_process(info_out))
        try:
            yield inmate
        finally:
            inmate.end(0)

    def _command(self, info: int) -> list[str]:
        """What bwrap is to do, up to the command that it runs."""
        command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--info-fd", str(info)]
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        command += ["--hostname", "sandbox", "--cap-drop", "ALL", "--clearenv"]
        for name, value in (ENVIRONMENT | {"HOME": _HOME}).items():
            command += ["--setenv", name, value]
        # Root needs these two to give up being root, and loses them with it.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if self.as_root else ["--unshare-user"]
        for folder in SYSTEM:
            is_link = Path(folder).is_symlink()
            command += (
                ["--symlink", str(Path(folder).readlink()), folder] if is_link else ["--ro-bind-try", folder, folder]
            )
        command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
        command += ["--proc", "/proc"] if self.proc else []
        command += ["--dev", "/dev", "--remount-ro", "/dev"]
        for folder in _FOLDERS:
            command += ["--size", str(_FOLDER_BYTES), "--perms", "1777", "--tmpfs", folder]
        for source, target in ((PREFIX, PREFIX), (_JAIL, "/jail/ddtree_tune/node/jail")):
            if not Path(target).is_relative_to("/usr"):
                # bwrap would make the folders above closed to all but root.
                for above in list(Path(target).parents)[-2::-1]:
                    command += ["--perms", "0755", "--dir", str(above)]
                command += ["--ro-bind", source, target]
        return [*command, "--remount-ro", "/", "--chdir", _HOME]


def _first_process(info: int) -> int | None:
    """Descriptor of the sandbox's first process; None if bwrap could not start one.

    bwrap names it before it lets it go on, and its number stays its own until bwrap has ended.
    """
    text = b""
    try:
        while readable(info, _START_S) and (chunk := os.read(info, 4096)):
            text += chunk
            with contextlib.suppress(ValueError, OSError):
                return os.pidfd_open(int(json.loads(text)["child-pid"]))
        return None
    finally:
        os.close(info)
