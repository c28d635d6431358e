"""The sandbox: every right outcome at every level, one hostile program per property."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent, indent

import pytest

from ddtree_tune.core.coding import Outcome, Problem
from ddtree_tune.core.errors import GradeError
from ddtree_tune.core.judge import Answered, settle, submit
from ddtree_tune.node.cage import PACKAGE, PREFIX, Inmate, Limits
from ddtree_tune.node.jail.confine import landlock_version
from ddtree_tune.node.sandbox import CAGES, STRICT, Sandbox, job_for, open_sandbox, self_test
from ddtree_tune.node.supervise import descendants
from tests.coding_cases import REPLIES, accepted, as_parameters, problem_of, reply_of
from tests.node.jail_cases import CHEATS, HONEST

LEVELS = [
    pytest.param("bwrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")),
    pytest.param("landlock+seccomp", marks=pytest.mark.skipif(landlock_version() == 0, reason="needs Landlock")),
]
QUICK = Limits(cpu_s=5.0, wall_s=20.0)
SECOND = Limits(cpu_s=1.0, wall_s=30.0)
SPIN = "def f():\n    while True: pass"


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request):
    return open_sandbox(levels=[request.param])


@pytest.fixture(scope="module")
def best():
    return open_sandbox()


@pytest.fixture(scope="module")
def bwrap():
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    return open_sandbox(levels=["bwrap"])


def run(sandbox, code, tests, *, prompt="", limits=QUICK):
    body = indent(dedent(tests).strip(), "    ")
    problem = Problem("p", "f", prompt, f"def check(candidate):\n{body}\n")
    return sandbox.run(job_for(problem, dedent(code)), limits)


def passes(sandbox, code, tests, **options):
    verdict = run(sandbox, code, tests, **options)
    assert verdict.outcome is Outcome.PASS, verdict.reason


def graded(case, sandbox):
    problem, reply = problem_of(case), reply_of(case)
    submission = submit(problem, reply)
    # A case's time limit says how long a loop may cost us; a second is as good.
    limits = SECOND if "timeout" in accepted(case) else QUICK
    verdict = None if submission.code is None else sandbox.run(job_for(problem, submission.code), limits)
    return settle(Answered(problem, reply), submission, verdict, sandbox.level)


@pytest.mark.parametrize("case", as_parameters([case for case in REPLIES if case["kind"] == "execute"]))
def test_each_program_ends_as_it_should(case, sandbox, monkeypatch):
    if sandbox.level != "bwrap" and "network isolation" in case.get("requires", ()):
        return  # without a network space of its own a program may not even list interfaces
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    for _ in range(case.get("repeat", 1)):
        start = time.monotonic()
        attempt = graded(case, sandbox)
        assert attempt.outcome.value in accepted(case), attempt.reason
        assert time.monotonic() - start < case.get("max_wall_s", 20)
    assert not Path(case.get("leftover", "scratch_zz.txt")).exists()


@pytest.mark.parametrize("case", as_parameters([case for case in REPLIES if case["kind"] != "execute"]))
def test_each_reply_comes_out_right(case, best):
    attempt = graded(case, best)
    assert attempt.outcome.value in accepted(case), attempt.reason


@pytest.mark.parametrize(("code", "tests"), HONEST)
def test_values_pass_without_loss(code, tests, sandbox):
    passes(sandbox, code, tests)


def test_classes_of_the_prompt_travel_by_their_attributes(sandbox):
    node = dedent("""
        class Node:
            def __init__(self, value=0, next=None):
                self.value = value
                self.next = next
        """)
    code = dedent("""
        def f(head):
            last = None
            while head:
                head.next, last, head = last, head, head.next
            return last
        """)
    tests = """
        head = None
        for i in range(1000):
            head = Node(i, head)
        got, seen = candidate(head), []
        while got:
            seen.append(got.value)
            got = got.next
        assert seen == list(range(1000))
        """
    prompt = f'{node}\n\ndef f(head):\n    """Reverse."""\n'
    passes(sandbox, code, tests, prompt=prompt)
    passes(sandbox, node + code, tests, prompt=prompt)


EVERY_WAY_TO_ASK = """
    passed = []
    for test in (
        lambda: candidate() == 25,
        lambda: 25 == candidate(),
        lambda: abs(candidate() - 25) < 1e-9,
        lambda: 25 in candidate(),
        lambda: candidate() in (25, 26),
    ):
        try:
            passed.append(bool(test()))
        except (TypeError, StopIteration, AssertionError):
            pass
    assert any(passed)
    """


@pytest.mark.parametrize("code", CHEATS)
def test_nothing_but_the_right_value_passes(code, sandbox):
    assert run(sandbox, code, EVERY_WAY_TO_ASK).outcome in {Outcome.WRONG_ANSWER, Outcome.EXCEPTION}


def test_the_right_value_does(sandbox):
    passes(sandbox, "def f():\n    return 25", EVERY_WAY_TO_ASK)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("os._exit(0)", Outcome.EXCEPTION),
        ("os.kill(os.getpid(), 9)", Outcome.EXCEPTION),
        ("os.closerange(3, 256), os.abort()", Outcome.EXCEPTION),
        ("[0 for _ in iter(int, 1)]", Outcome.TIMEOUT),
    ],
)
def test_no_test_can_take_an_end_for_an_exception(end, outcome, sandbox):
    tests = """
        try:
            candidate()
        except BaseException:
            pass
        """
    assert run(sandbox, f"import os\ndef f():\n    {end}", tests, limits=SECOND).outcome is outcome


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("assert candidate() == 1\nundefined_name", "broken"),
        ("undefined_name", "broken"),
        ("pass", "never call"),
        ("import no_such_module_zz", "broken"),
    ],
)
def test_tests_that_are_wrong_themselves_are_no_fault_of_the_program(tests, reason, best):
    verdict = run(best, "def f():\n    return 1", tests)
    assert verdict.outcome is Outcome.HARNESS_ERROR
    assert reason in verdict.reason


def test_a_value_that_the_tests_cannot_use_and_a_check_that_says_no_are_wrong_answers(best):
    verdict = run(best, "def f():\n    pass", "assert len(candidate()) == 0")
    assert verdict.outcome is Outcome.WRONG_ANSWER
    assert "TypeError" in verdict.reason
    assert run(best, "def f():\n    return 1", "return candidate() == 2").outcome is Outcome.WRONG_ANSWER


def test_the_reason_names_the_test_and_what_the_program_returned(best):
    verdict = run(best, "def f(x):\n    return x + 1", "assert candidate(1) == 2\nassert candidate(2) == 4")
    assert "line 3" in verdict.reason
    assert "gave 3" in verdict.reason


def test_cpu_time_and_wall_time_are_two_limits(sandbox):
    sleeps = "import time\ndef f(s):\n    time.sleep(s)\n    return 1"
    passes(sandbox, sleeps, "assert candidate(1.2) == 1", limits=SECOND)
    slept = run(sandbox, sleeps, "candidate(60)", limits=Limits(5.0, 0.8))
    assert (slept.outcome, slept.seconds < 5) == (Outcome.TIMEOUT, True)
    assert "wall time" in slept.reason
    spun = run(sandbox, SPIN, "candidate()", limits=SECOND)
    assert spun.outcome is Outcome.TIMEOUT
    assert "CPU time" in spun.reason


def test_a_program_that_ignores_the_cpu_limit_ends_a_second_later(best):
    code = f"import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n{SPIN}"
    assert run(best, code, "candidate()", limits=SECOND).outcome is Outcome.TIMEOUT


def test_a_busy_neighbour_does_not_use_up_the_cpu_limit(best):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
        try:
            code = "import time\ndef f():\n    while time.process_time() < 0.5: pass\n    return 1"
            passes(best, code, "assert candidate() == 1", limits=SECOND)
        finally:
            neighbour.kill()


def test_output_without_end_fills_no_memory(best):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = """
        import sys
        def f():
            while True:
                sys.stdout.write("x" * 65536)
                sys.stderr.write("y" * 65536)
        """
    assert run(best, code, "candidate()", limits=SECOND).outcome is Outcome.TIMEOUT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.parametrize(
    "body",
    [
        "with open('big', 'wb') as big:\n        while True: big.write(bytes(1 << 20))",
        "return [bytearray(300 << 20) for _ in range(100)]",
        "return [open('/dev/null') for _ in range(1000)]",
        "return 'x' * (80 << 20)",
    ],
)
def test_files_memory_descriptors_and_answers_are_limited(body, sandbox):
    assert run(sandbox, f"def f():\n    {body}", "candidate()").outcome is Outcome.EXCEPTION


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


def test_a_sandbox_that_does_not_start_is_the_harness_fault_and_fails_its_self_test():
    class Broken:
        family = name = "broken"

        def missing(self):
            return ""

        @contextlib.contextmanager
        def inmate(self, channel, *, nonce, limits, errors):
            inmate = Inmate(subprocess.Popen(["sh", "-c", "echo no can do >&2; exit 3"], stderr=errors))
            yield inmate
            inmate.end(0)

    sandbox = Sandbox(Broken())
    verdict = run(sandbox, "def f():\n    return 1", "assert candidate() == 1")
    assert verdict.outcome is Outcome.HARNESS_ERROR
    assert "no can do" in verdict.reason
    assert "harness_error" in self_test(sandbox)


def test_a_level_that_is_not_there_is_refused_in_a_sentence():
    with pytest.raises(GradeError, match="must work at one of the levels nothing, but got none known"):
        open_sandbox(levels=["nothing"])


def test_limits_alone_are_taken_only_when_asked_for():
    assert {"seccomp", "rlimits"} <= {cage.family for cage in CAGES}
    assert not {"seccomp", "rlimits"} & set(STRICT)
    assert open_sandbox().level.removesuffix("+setuid") in STRICT


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
