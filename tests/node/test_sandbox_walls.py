"""Walls of the sandbox: what a program sees and reaches, what it leaves behind, and whom it runs as."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from ddtree_tune.core.coding import Outcome
from ddtree_tune.node.cage import PACKAGE, PREFIX, Limits
from ddtree_tune.node.sandbox import open_sandbox
from ddtree_tune.node.supervise import descendants
from tests.node.sandboxed import LEVELS, passes, run


def test_only_the_standard_library_is_there(sandbox):
    verdict = run(sandbox, "import numpy\ndef f():\n    return 1", "assert candidate() == 1")
    assert verdict.outcome is Outcome.EXCEPTION
    assert "numpy" in verdict.reason


def test_a_program_sees_no_environment_and_no_file_of_ours(sandbox, monkeypatch):
    monkeypatch.setenv("A_SECRET_TOKEN", "x")
    secret = Path(PACKAGE) / "pyproject.toml"
    assert secret.exists()
    code = """
        import os
        def f(path):
            try:
                open(path).close()
            except OSError:
                return os.environ.get("A_SECRET_TOKEN"), os.listdir(".")
        """
    passes(sandbox, code, f"assert candidate({str(secret)!r}) == (None, [])")


def test_the_system_is_read_only_and_so_is_this_package(sandbox):
    code = """
        import os
        def f(folders):
            written = []
            for folder in folders:
                try:
                    open(os.path.join(folder, "zz_probe"), "w").close()
                    written.append(folder)
                except OSError:
                    pass
            return written
        """
    places = ["/", "/usr", "/etc", "/var/tmp", "/dev", "/proc", "/jail", "/root", PREFIX, PACKAGE, str(Path.cwd())]
    passes(sandbox, code, f"assert candidate({places!r}) == []")
    assert not (Path(PACKAGE) / "zz_probe").exists()


def is_running(mark):
    """Whether any process has a word on its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "cmdline").read_bytes():
                return True
    return False


def test_no_process_stays_behind(sandbox):
    mark = f"mark{os.getpid()}x{time.monotonic_ns()}"
    code = """
        import os, subprocess, time
        def f(mark, then=0):
            try:
                subprocess.Popen(["sleep", "600", mark], start_new_session=True)
                if os.fork() == 0:
                    os.setsid()
                    os.execv("/bin/sleep", ["sleep", "600", mark])
            except PermissionError:
                pass  # where no process may start, none can stay
            time.sleep(then)
            return 1
        """
    passes(sandbox, code, f"assert candidate({mark!r}) == 1")
    assert not is_running(mark)
    assert run(sandbox, code, f"candidate({mark!r}, 60)", limits=Limits(5.0, 1.0)).outcome is Outcome.TIMEOUT
    assert not is_running(mark)


def test_a_fork_bomb_is_bounded_and_gone(bwrap):
    code = """
        import os, time
        def f():
            started = 0
            try:
                while True:
                    if os.fork() == 0:
                        time.sleep(60)
                    started += 1
            except OSError:
                return started
        """
    start = time.monotonic()
    passes(bwrap, code, "assert 10 < candidate() < 100")
    assert time.monotonic() - start < 20


def test_child_processes_work_inside(bwrap):
    code = """
        import subprocess
        def f():
            return subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout
        """
    passes(bwrap, code, r"assert candidate() == 'hi\n'")


def test_a_program_is_an_ordinary_user_without_capabilities(bwrap):
    code = "import os\ndef f():\n    return os.getuid(), open('/proc/self/status').read()"
    passes(bwrap, code, "uid, status = candidate()\nassert uid != 0\nassert 'CapEff:\\t0000000000000000' in status")


def test_a_program_without_bubblewrap_can_start_signal_and_connect_to_nobody():
    sandbox = open_sandbox(levels=["seccomp"])
    code = """
        import os, signal, socket, subprocess
        def f(pid):
            refused = []
            for attempt in (os.fork, lambda: subprocess.run(["true"]), lambda: os.kill(pid, 0), socket.socket):
                try:
                    attempt()
                except PermissionError:
                    refused.append(1)
            os.kill(os.getpid(), 0)
            return len(refused)
        """
    assert sandbox.level.removesuffix("+setuid") == "seccomp"
    passes(sandbox, code, f"assert candidate({os.getpid()}) == 4")


def test_everything_ends_with_the_harness(sandbox):
    code = f"""
        from ddtree_tune.node.cage import Limits
        from ddtree_tune.node.sandbox import Job, open_sandbox
        sandbox = open_sandbox(levels=[{sandbox.level.removesuffix("+setuid")!r}])
        print("up", flush=True)
        program = "import time\\ndef f(): time.sleep(600)"
        sandbox.run(Job(program, "f", "def check(candidate): candidate()"), Limits(500, 500))
        """
    deadline = time.monotonic() + 30
    with subprocess.Popen([sys.executable, "-c", dedent(code)], stdout=subprocess.PIPE, cwd=PACKAGE) as harness:
        assert harness.stdout.readline() == b"up\n"
        while len(found := descendants(harness.pid)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        harness.send_signal(signal.SIGKILL)
    while any(state_of(pid) != "Z" for pid in found):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def state_of(pid):
    """One letter; Z for a process that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
@pytest.mark.parametrize("level", LEVELS)
def test_an_ordinary_user_can_run_it_too(level):
    """In a mount space where closed folders are replaced, for that user must reach Python and us."""
    closed = {}
    for path in map(Path, dict.fromkeys([PREFIX, sys.prefix, PACKAGE])):
        shut = [above for above in (*reversed(path.parents), path) if not above.stat().st_mode & 0o001]
        if shut:
            closed[path] = shut[0]
    script = ["set -e", "mount -t tmpfs -o mode=755 tmpfs /mnt"]
    script += [f"mkdir /mnt/{number}; mount --rbind {path} /mnt/{number}" for number, path in enumerate(closed)]
    script += [f"mount -t tmpfs -o mode=755 tmpfs {shut}" for shut in dict.fromkeys(closed.values())]
    # What is in it, one by one: the folder itself may be the closed one.
    script += [
        f"mkdir -p {path}; for from in /mnt/{number}/*; do to={path}/${{from##*/}}; "
        'if [ -d "$from" ]; then mkdir -p "$to"; else touch "$to"; fi; mount --rbind "$from" "$to"; done'
        for number, path in enumerate(closed)
    ]
    script += ['exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"']
    code = f"""
        import os
        from ddtree_tune.node.cage import Limits
        from ddtree_tune.node.sandbox import Job, open_sandbox
        sandbox = open_sandbox(levels=[{level!r}])
        program = "import os\\ndef f(): return os.getuid()"
        verdict = sandbox.run(Job(program, "f", "def check(candidate): assert candidate() == 65534"), Limits())
        print(os.getuid(), sandbox.level, verdict.outcome, verdict.reason)
        """
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "\n".join(script), "sh", sys.executable, "-c", dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("needs a root that may mount")
    assert done.stdout == f"65534 {level} pass \n", done.stderr
