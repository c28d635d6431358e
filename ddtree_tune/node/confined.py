"""The levels without bubblewrap: a process that confines itself before it runs the program."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.node.cage import (
    ENVIRONMENT,
    PACKAGE,
    PREFIX,
    SYSTEM,
    Inmate,
    Limits,
    free_uid,
    inmate_command,
    may_change_user,
    open_to_all,
)
from ddtree_tune.node.jail import confine

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILES = ("/etc/ld.so.cache", "/dev/urandom", "/dev/zero")
"""Files outside the system's folders that programs may read."""


@dataclass(frozen=True, slots=True)
class Confined:
    """Landlock and seccomp as far as asked, another user where we are root, limits always."""

    landlock: bool
    seccomp: bool

    @property
    def family(self) -> str:
        """See ``Cage``."""
        return "+".join(["landlock"] * self.landlock + ["seccomp"] * self.seccomp) or "rlimits"

    @property
    def name(self) -> str:
        """See ``Cage``."""
        return self.family + ("+setuid" if _can_change_user() else "")

    def missing(self) -> str:
        """See ``Cage``."""
        if (self.landlock or self.seccomp) and sys.platform != "linux":
            return "needs Linux"
        if self.landlock and confine.landlock_version() == 0:
            return "the kernel has no Landlock"
        if not self.seccomp and os.geteuid() == 0 and not _can_change_user():
            return f"root cannot be kept from starting processes, and {PREFIX} is closed to other users"
        return ""

    @contextlib.contextmanager
    def inmate(self, channel: int, *, nonce: str, limits: Limits, errors: int) -> Iterator[Inmate]:
        """See ``Cage``."""
        uid = free_uid() if _can_change_user() else None
        command = inmate_command(
            PACKAGE,
            channel,
            nonce,
            limits,
            parent=os.getpid(),
            uid=uid,
            landlock=self.landlock,
            seccomp=self.seccomp,
            # Without the filter no process and no thread may start, or it could stay behind.
            processes=None if self.seccomp else 1,
            readable=[*SYSTEM, PREFIX, *_FILES],
        )
        folder = tempfile.mkdtemp(prefix="ddtree-tune-")
        try:
            if uid is not None:
                os.chown(folder, uid, uid)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(channel,),
                env=ENVIRONMENT | {"HOME": folder, "TMPDIR": folder},
                cwd=folder,
                start_new_session=True,
            )
            inmate = Inmate(process)
            try:
                yield inmate
            finally:
                inmate.end(0)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _can_change_user() -> bool:
    return may_change_user() and open_to_all(PREFIX)
