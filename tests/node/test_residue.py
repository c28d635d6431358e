"""Two hundred hostile programs in a row leave no process, file, mount or descriptor behind."""

import contextlib
import ctypes
import os
import shutil
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddtree_tune.core.coding import Outcome
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.jail.confine import landlock_version
from ddtree_tune.node.sandbox import Job, open_sandbox
from ddtree_tune.node.supervise import descendants

PROGRAMS = 200
WORKERS = 4
LIMITS = Limits(cpu_s=1.0, wall_s=10.0)
PR_SET_CHILD_SUBREAPER = 36
SHM_KEY = 0x5DD70000
PLACES = ("/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/home", ".")

# Each is the body of a function f(mark, n); whatever it is refused it swallows, and goes on.
HOSTILE = {
    "a daemon of two forks": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for signal in (1, 2, 15):
                    __import__("signal").signal(signal, 1)
                time.sleep(600)
            os._exit(0)
        """,
    "a child in a session of its own": """
        subprocess.Popen(["sleep", "600", mark], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
        """,
    "as many children as there may be": """
        while True:
            if os.fork() == 0:
                time.sleep(600)
        """,
    "files wherever one can be": """
        for place in PLACES:
            try:
                with open(os.path.join(place, mark + str(n)), "wb") as file:
                    file.write(bytes(100_000))
            except OSError:
                pass
        """,
    "a deep folder that nobody may enter": """
        for place in ("/tmp", "."):
            try:
                path = os.path.join(place, mark + str(n), *"abcdefgh")
                os.makedirs(path)
                os.symlink("/", os.path.join(path, "up"))
                os.mkfifo(os.path.join(path, "new\\nline"))
                os.chmod(path, 0)
            except OSError:
                pass
        """,
    "a mount": """
        libc = ctypes.CDLL(None, use_errno=True)
        libc.unshare(0x10000000 | 0x00020000)
        for place in PLACES:
            libc.mount(b"none", place.encode(), b"tmpfs", 0, None)
        subprocess.run(["mount", "-t", "tmpfs", mark, "/tmp"])
        """,
    "shared memory, a socket and a lock": """
        import socket
        ctypes.CDLL(None).shmget(SHM_KEY + n, 4096, 0o1666)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("/tmp/" + mark + str(n))
        listening.listen()
        """,
    "an end without a word": """
        os._exit(0)
        """,
    "a signal for everybody": """
        for who in (-1, 0, os.getppid(), 1):
            try:
                os.kill(who, 9)
            except OSError:
                pass
        """,
    "no descriptor left, and a thread that stays": """
        import threading
        threading.Thread(target=time.sleep, args=(600,)).start()
        os.closerange(0, 256)
        """,
}
PROGRAM = f"""
import ctypes, os, subprocess, time
PLACES = {PLACES!r}
SHM_KEY = {SHM_KEY}
def f(mark, n):
    try:
        attack(mark, n)
    except (OSError, ValueError, ImportError):
        pass
    return n
def attack(mark, n):
    """

LEVELS = [
    pytest.param("bwrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")),
    pytest.param("landlock+seccomp", marks=pytest.mark.skipif(landlock_version() == 0, reason="needs Landlock")),
]


@pytest.fixture
def orphans_are_ours():
    """Make this process inherit whatever is orphaned below it, so that nothing can hide from it."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def job(mark, number, body):
    lines = [line.removeprefix("    " * 2) for line in body.strip("\n").splitlines()]
    code = PROGRAM + "\n    ".join(["pass", *lines]) + "\n"
    return Job(code, "f", f"def check(candidate):\n    assert candidate({mark!r}, {number}) == {number}\n")


def left_files(mark):
    """Files with the mark, at most two folders below the places that programs try."""
    found = []
    for place in (*PLACES, tempfile.gettempdir()):
        for root, folders, files in os.walk(place):
            found += [Path(root) / name for name in (*folders, *files) if mark in name]
            if root.rstrip("/").count("/") - place.rstrip("/").count("/") >= 1:
                folders.clear()
    return found


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("orphans_are_ours")
@pytest.mark.parametrize("level", LEVELS)
def test_two_hundred_hostile_programs_leave_nothing_behind(level, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    mark = f"residue{os.getpid()}x{time.monotonic_ns()}"
    sandbox = open_sandbox(levels=[level])
    names = [name for name, _ in zip(_cycle(), range(PROGRAMS), strict=False)]
    before = (set(descendants(os.getpid())), Path("/proc/self/mounts").read_text(), descriptors())
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(lambda n: sandbox.run(job(mark, n, HOSTILE[names[n]]), LIMITS), range(PROGRAMS)))
    outcomes = Counter((name, verdict.outcome) for name, verdict in zip(names, verdicts, strict=True))
    assert len(verdicts) == PROGRAMS
    assert outcomes["an end without a word", Outcome.EXCEPTION] == PROGRAMS // len(HOSTILE)
    assert not [verdict for verdict in verdicts if verdict.outcome is Outcome.HARNESS_ERROR], outcomes
    deadline = time.monotonic() + 10
    while (stayed := set(descendants(os.getpid())) - before[0]) and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # who reaps orphans is the init process elsewhere
        time.sleep(0.05)
    assert not stayed
    assert Path("/proc/self/mounts").read_text() == before[1]
    assert descriptors() == before[2]
    assert left_files(mark) == []
    assert list(tmp_path.iterdir()) == []
    keys = [line.split()[0] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    assert not [key for key in keys if SHM_KEY <= int(key) < SHM_KEY + PROGRAMS]


def _cycle():
    while True:
        yield from HOSTILE
