"""What a process takes from itself before it runs a program: limits, files, signals, network.

Inside bubblewrap the limits suffice. Without it Landlock closes the file system and a seccomp
filter forbids new processes, signals to others, sockets and whatever else leads outside. All of
it is inherited and cannot be undone.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_READ = 0b1101
"""Execute, read files, list folders."""
_FILE_RIGHTS = 0x4007
"""Rights that a file may have: execute, write, read, truncate."""
_LANDLOCK_FILES_BY_ABI = {1: 0x1FFF, 2: 0x3FFF}
"""All file rights of old versions; version 3 adds truncation."""


class _Numbers(NamedTuple):
    """System call numbers of one machine type."""

    audit: int
    forbidden: tuple[int, ...]
    clone: int
    socket: int
    signals: tuple[int, ...]
    """Calls whose first argument is the process that they act on."""


_MACHINES = {
    "x86_64": _Numbers(
        audit=0xC000003E,
        # fork vfork execve execveat ptrace process_vm_readv process_vm_writev setns unshare mount umount2 pivot_root
        # chroot bpf perf_event_open keyctl add_key request_key userfaultfd io_uring_setup pidfd_send_signal
        # pidfd_getfd setpriority sched_setaffinity, and what outlives a process: shmget semget msgget mq_open
        forbidden=(
            *(57, 58, 59, 322, 101, 310, 311, 308, 272, 165, 166, 155),
            *(161, 321, 298, 250, 248, 249, 323, 425, 424, 438, 141, 203, 29, 64, 68, 240),
        ),
        clone=56,
        socket=41,
        # kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo prlimit64
        signals=(62, 200, 234, 129, 297, 302),
    ),
    "aarch64": _Numbers(
        audit=0xC00000B7,
        # the same without fork and vfork, which it has not
        forbidden=(
            *(221, 281, 117, 270, 271, 268, 97, 40, 39, 41),
            *(51, 280, 241, 219, 217, 218, 282, 425, 424, 438, 140, 122, 194, 190, 186, 180),
        ),
        clone=220,
        socket=198,
        signals=(129, 130, 131, 138, 240, 261),
    ),
}
_CLONE3 = 435
_CLONE_THREAD = 0x10000
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def _prctl(option: int, *values: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if libc.prctl(ctypes.c_int(option), *arguments):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def limit(*, cpu_s: int, memory_bytes: int, processes: int | None) -> None:
    """Set the resource limits of this process and all that it starts.

    The soft CPU limit ends a program that does not catch SIGXCPU, the hard one every other.
    """
    for what, soft, hard in (
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        (resource.RLIMIT_NPROC, processes, processes),
        (resource.RLIMIT_FSIZE, 64 << 20, 64 << 20),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        if soft is None or hard is None:
            continue
        ceiling = resource.getrlimit(what)[1]
        top = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
        resource.setrlimit(what, (min(soft, top), top))


def become(uid: int) -> None:
    """Give up root for an ordinary user, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """Give up what root may do beyond its files, for a root that has no other user to become."""
    header = struct.pack("Ii", 0x20080522, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


def no_new_privileges() -> None:
    """Make set-uid programs ordinary; Landlock and seccomp ask for it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, as it may have already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def hide_memory() -> None:
    """Let no process of the same user read or trace this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def landlock_version() -> int:
    """Version of the kernel's Landlock; 0 without it."""
    version = ctypes.CDLL(None, use_errno=True).syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(version), 0)


def restrict_files(readable: list[str], writable: list[str]) -> None:
    """Leave only these folders, by Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = landlock_version()
    rights = _LANDLOCK_FILES_BY_ABI.get(version, 0x7FFF)
    # Version 4 knows TCP, version 6 signals and abstract sockets; longer than the kernel knows is an error.
    attributes = struct.pack("QQQ", rights, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for folders, allowed in ((readable, _LANDLOCK_READ & rights), (writable, rights)):
        for folder in filter(os.path.exists, folders):
            descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            files_only = rights if os.path.isdir(folder) else _FILE_RIGHTS  # noqa: PTH112 - pathlib costs 4 ms
            rule = struct.pack("=Qi", allowed & files_only, descriptor)
            if libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, ctypes.c_uint32(0)):
                raise OSError(ctypes.get_errno(), f"landlock_add_rule {folder}")
            os.close(descriptor)
    if libc.syscall(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0)):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def filter_calls() -> None:
    """Forbid new processes, signals to others, sockets but local ones, what outlives a process, and ways around.

    Raises:
        OSError: the kernel or the machine type cannot do it.
    """
    numbers = _MACHINES.get(os.uname().machine)
    if numbers is None:
        raise OSError(_ENOSYS, f"no system call numbers for {os.uname().machine}")
    code = b"".join(struct.pack("HBBI", *line) for line in _program(numbers, os.getpid()))
    buffer = ctypes.create_string_buffer(code)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    program = Program(len(code) // 8, ctypes.addressof(buffer))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(program))


def _program(numbers: _Numbers, pid: int) -> list[tuple[int, int, int, int]]:
    """The filter as classic BPF: (code, jump if true, jump if false, operand)."""
    load, equal, at_least, has_bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    number_at, machine_at, first_argument_at = 0, 4, 16

    def refuse(error: int) -> tuple[int, int, int, int]:
        return (give, 0, 0, _ERRNO | error)

    allow = (give, 0, 0, _ALLOW)
    lines = [(load, 0, 0, machine_at), (equal, 1, 0, numbers.audit), (give, 0, 0, _KILL), (load, 0, 0, number_at)]
    lines += [(at_least, 0, 1, 0x40000000), refuse(_ENOSYS)]  # the x32 table
    for number in numbers.forbidden:
        lines += [(equal, 0, 1, number), refuse(_EPERM)]
    lines += [(equal, 0, 1, _CLONE3), refuse(_ENOSYS)]  # its flags are out of reach; libc falls back to clone
    lines += [(equal, 0, 4, numbers.clone), (load, 0, 0, first_argument_at), (has_bits, 0, 1, _CLONE_THREAD)]
    lines += [allow, refuse(_EPERM)]
    lines += [(equal, 0, 4, numbers.socket), (load, 0, 0, first_argument_at), (equal, 0, 1, 1), allow, refuse(_EPERM)]
    for number in numbers.signals:
        lines += [(equal, 0, 5, number), (load, 0, 0, first_argument_at), (equal, 1, 0, pid), (equal, 0, 1, 0)]
        lines += [allow, refuse(_EPERM)]
    return [*lines, allow]
