"""Limits of the sandbox: CPU time, wall time, memory, files and output."""

import resource
import subprocess
import sys

import pytest

from ddtree_tune.core.coding import Outcome
from ddtree_tune.node.cage import Limits
from tests.node.sandboxed import SECOND, passes, run

SPIN = "def f():\n    while True: pass"


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
