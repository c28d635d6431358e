"""An exit and its log name the class of the failure."""

import pytest

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.faults import classify


@pytest.mark.parametrize(
    ("tail", "code", "ready", "failure"),
    [
        ("OSError: [Errno 98] Address already in use", 1, False, FailureClass.PORT_CONFLICT),
        (
            "[Errno 98] error while attempting to bind on address: address already in use",
            1,
            False,
            FailureClass.PORT_CONFLICT,
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.", 1, False, FailureClass.STARTUP_OOM),
        ("torch.OutOfMemoryError: CUDA out of memory.", 1, True, FailureClass.OOM_RUNTIME),
        (
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate\nMemoryError",
            1,
            True,
            FailureClass.OOM_RUNTIME,
        ),
        ("x: error: unrecognized arguments: --budgett", 2, False, FailureClass.INVALID_CONFIG),
        ("ValueError: Unknown speculative algorithm name: DDTREE", 1, False, FailureClass.INVALID_CONFIG),
        ("loading\nsomething else", 1, False, FailureClass.STARTUP_CRASH),
        ("", -9, True, FailureClass.CRASH_REQUEST),
        ("", None, False, FailureClass.STARTUP_CRASH),
    ],
)
def test_an_exit_and_its_log_name_the_class(tail, code, ready, failure):
    fault = classify(tail, code, ready=ready)
    assert fault.failure is failure
    assert "\n" not in fault.reason
    assert fault.reason.startswith("the server ended with ")


def test_the_reason_quotes_the_line_that_decided():
    fault = classify("a\nCUDA out of memory. Tried 2 GiB\nexiting", 1, ready=False)
    assert fault.reason == "the server ended with exit code 1: CUDA out of memory. Tried 2 GiB"
    assert classify("a\nb\n\n", -11, ready=True).reason == "the server ended with signal 11: b"


ROUTINE = """[2026-11-30 16:52:56] INFO:     127.0.0.1:59996 - "POST /generate HTTP/1.1" 200 OK
python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked
  warnings.warn('resource_tracker: There appear to be %d '"""


def test_a_log_of_routine_alone_is_not_quoted_as_a_reason():
    assert classify(ROUTINE, 1, ready=True).reason == "the server ended with exit code 1 and a log that tells nothing"
    assert classify(f"a\n{ROUTINE}", 1, ready=True).reason == "the server ended with exit code 1: a"


@pytest.mark.parametrize("tail", ["", ROUTINE, f"Decode batch, #running-req: 8\n{ROUTINE}"])
def test_a_server_killed_from_outside_is_told_so(tail):
    fault = classify(tail, -9, ready=True)
    assert fault.reason.startswith("the server ended with signal 9; that signal comes from outside")


def test_a_server_that_ends_itself_by_sigkill_is_quoted():
    reason = classify(f"{CRASHED.format(-11)}\n{ROUTINE}", -9, ready=True).reason
    assert reason == f"the server ended with signal 9: {CRASHED.format(-11)}"


CRASHED = "Subprocess scheduler_0 (pid=123) crashed with exit code {}. Triggering SIGQUIT for cleanup..."
DIED = (
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common"
)


@pytest.mark.parametrize(
    ("tail", "failure"),
    [
        (CRASHED.format(-9), FailureClass.STARTUP_CRASH),
        (DIED, FailureClass.STARTUP_CRASH),
        (CRASHED.format(-11), FailureClass.CAPTURE_CRASH),
        (
            f"Scheduler hit an exception: Traceback\nRuntimeError: no kernel\n{CRASHED.format(-9)}",
            FailureClass.CAPTURE_CRASH,
        ),
    ],
)
def test_a_scheduler_killed_from_outside_while_it_captures_may_have_been_chance(tail, failure):
    assert classify(tail, -9, ready=False, phase="capturing CUDA graphs").failure is failure
