"""The sandbox: every right outcome at every level."""

import contextlib
import subprocess
import time
from pathlib import Path
from textwrap import dedent

import pytest

from ddtree_tune.core.coding import Outcome
from ddtree_tune.core.errors import GradeError
from ddtree_tune.core.judge import Answered, settle, submit
from ddtree_tune.node.cage import Inmate
from ddtree_tune.node.sandbox import CAGES, STRICT, Sandbox, job_for, open_sandbox, self_test
from tests.coding_cases import REPLIES, accepted, as_parameters, problem_of, reply_of
from tests.node.jail_cases import CHEATS, HONEST
from tests.node.sandboxed import QUICK, SECOND, passes, run


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
