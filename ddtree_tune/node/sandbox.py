"""Runs one program against its tests where it can do no harm and cannot cheat.

The program runs in one process, its tests in another (``node.jail``); only plain data passes.

Covered, by level:
- ``bwrap``: own user, process, network, IPC and host-name spaces; a system that can only be read
  and holds nothing but the interpreter; a private folder in memory; no environment, no
  capability, an unprivileged user even where we are root. When it ends, all it started is gone.
- ``landlock+seccomp``, with ``+setuid`` as root: no files but the interpreter's and a private
  folder, no new processes, no signals to others, no sockets. Threads work.
- ``seccomp``, and ``rlimits`` alone: less than that, on request only. With the latter a program
  can read what we can, and end our other processes.
- All: CPU time apart from wall time, memory per process, file size, descriptors; output goes
  nowhere and standard input is empty; the same hash seed and standard library in every run.

Not covered: holes in the kernel; the memory of many processes together; side channels. It keeps
model output in its place, and was not made for people who try to break out.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import selectors
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.coding import Outcome
from ddtree_tune.core.errors import GradeError
from ddtree_tune.core.judge import Verdict
from ddtree_tune.core.prompt import scope_of
from ddtree_tune.node.bubblewrap import Bubblewrap
from ddtree_tune.node.cage import PACKAGE, Cage, Limits, bootstrap
from ddtree_tune.node.confined import Confined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddtree_tune.core.coding import Problem

CAGES: tuple[Cage, ...] = (
    Bubblewrap(as_root=True, proc=True),
    Bubblewrap(as_root=False, proc=True),
    Bubblewrap(as_root=True, proc=False),
    Bubblewrap(as_root=False, proc=False),
    Confined(landlock=True, seccomp=True),
    Confined(landlock=False, seccomp=True),
    Confined(landlock=False, seccomp=False),
)
"""All levels, best first."""
STRICT = ("bwrap", "landlock+seccomp")
"""Levels that are good enough unasked, best first."""
WEAK = ("seccomp", "rlimits")
"""Levels that the spec must ask for."""
_EVIDENCE_BYTES = 4096
"""What is kept of the sandbox's own complaints."""
_LAST_WORDS_S = 1.0
"""How long a program that left the channel may take to end, so that we see how it did."""


@dataclass(frozen=True, slots=True)
class Job:
    """One program and what it must do."""

    code: str
    entry_point: str
    tests: str
    scope: str = ""
    """The prompt's imports and helpers, which program and tests may use."""


def job_for(problem: Problem, code: str) -> Job:
    """The job that grades ``code`` as an answer to ``problem``."""
    return Job(code, problem.entry_point, problem.tests, scope_of(problem.prompt, problem.entry_point))


class Sandbox:
    """Runs jobs at one level of isolation; threads may share it."""

    def __init__(self, cage: Cage) -> None:
        self._cage = cage

    @property
    def level(self) -> str:
        """Name of the level, for the record."""
        return self._cage.name

    def run(self, job: Job, limits: Limits) -> Verdict:
        """Run one job to its verdict; never raises for what the program does."""
        start = time.perf_counter()
        try:
            outcome, reason = self._run(job, limits, start)
        except OSError as error:
            outcome, reason = Outcome.HARNESS_ERROR, f"the sandbox cannot run: {error}"
        return Verdict(outcome, reason, time.perf_counter() - start)

    def _run(self, job: Job, limits: Limits, start: float) -> tuple[Outcome, str]:
        ours, theirs = socket.socketpair()
        nonce = secrets.token_hex(16)
        evidence_out, evidence_in = os.pipe()
        with contextlib.ExitStack() as stack:
            for end in (ours, theirs):
                stack.callback(end.close)
            stack.callback(os.close, evidence_out)
            try:
                inmate = stack.enter_context(
                    self._cage.inmate(theirs.fileno(), nonce=nonce, limits=limits, errors=evidence_in)
                )
                checker = stack.enter_context(_checker(ours.fileno(), errors=evidence_in))
            finally:
                os.close(evidence_in)
            theirs.close()
            fields = {"code": job.code, "scope": job.scope, "tests": job.tests, "entry_point": job.entry_point}
            said, evidence = _talk(
                checker,
                evidence_out,
                fields | {"nonce": nonce, "channel": ours.fileno(), "parent": os.getpid()},
                limits.wall_s,
            )
            gone = said is not None and said.get("outcome") == "gone"
            code = inmate.end(_LAST_WORDS_S if gone else 0)
        if said is None:
            return Outcome.TIMEOUT, f"no end within {limits.wall_s:g} s of wall time"
        if not said:
            return Outcome.HARNESS_ERROR, f"the tests' process gave no verdict: {evidence or 'no message'}"
        outcome, reason = said["outcome"], said["reason"]
        if gone:
            return _how_it_ended(code, limits, time.perf_counter() - start)
        if outcome == Outcome.HARNESS_ERROR and evidence:
            reason = f"{reason}: {evidence}"
        return Outcome(outcome), reason


def _how_it_ended(code: int, limits: Limits, elapsed_s: float) -> tuple[Outcome, str]:
    """The verdict on a program that ended without an answer."""
    # SIGXCPU comes at the limit; a program that ignores it gets SIGKILL a second later.
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and elapsed_s >= limits.cpu_s):
        return Outcome.TIMEOUT, f"no end within {limits.cpu_s:g} s of CPU time"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Outcome.EXCEPTION, f"the program ended without an answer, by {how}"


def open_sandbox(*, allow_weak: bool = False, levels: Sequence[str] | None = None) -> Sandbox:
    """The best level that works here, proved with a right and a wrong program.

    Args:
        allow_weak: take resource limits alone where nothing better works.
        levels: names to try instead, in order.

    Raises:
        GradeError: no level works; says why each one does not.
    """
    wanted = levels or (*STRICT, *(WEAK if allow_weak else ()))
    refused = []
    for cage in CAGES:
        if cage.family not in wanted:
            continue
        sandbox = Sandbox(cage)
        problem = cage.missing() or self_test(sandbox)
        if not problem:
            return sandbox
        refused.append(f"{cage.name}: {problem}")
    raise GradeError(
        f"a sandbox must work at one of the levels {', '.join(wanted)}, but got {'; '.join(refused) or 'none known'}; "
        "install bubblewrap, or allow a weak one: coding.sandbox: weak in a spec, --allow-weak of grade"
    )


def self_test(sandbox: Sandbox) -> str:
    """Grade a right and a wrong program.

    Returns:
        What is wrong with the sandbox; empty if nothing is.
    """
    tests = "def check(candidate):\n    assert candidate([2, 1]) == [1, 2]\n"
    limits = Limits(cpu_s=5.0, wall_s=20.0)
    for body, expected in (("sorted(xs)", Outcome.PASS), ("xs", Outcome.WRONG_ANSWER)):
        verdict = sandbox.run(Job(f"def order(xs):\n    return {body}\n", "order", tests), limits)
        if verdict.outcome is not expected:
            return f"a program that must end in {expected} ended in {verdict.outcome}: {verdict.reason}"
    return ""


@contextlib.contextmanager
def _checker(channel: int, *, errors: int) -> Iterator[subprocess.Popen[bytes]]:
    """The tests' process; ended with the block."""
    process = subprocess.Popen(
        bootstrap("checker", PACKAGE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        pass_fds=(channel,),
        env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _talk(
    checker: subprocess.Popen[bytes], evidence_out: int, fields: dict[str, Any], wall_s: float
) -> tuple[dict[str, str] | None, str]:
    """Give the job, wait for the verdict.

    Returns:
        The verdict, empty if the checker ended without one, None if time ran out; and what the
        sandbox itself complained about.
    """
    deadline = time.monotonic() + wall_s
    assert checker.stdin is not None
    assert checker.stdout is not None
    out = checker.stdout.fileno()
    job = memoryview(json.dumps(fields).encode())
    answer, evidence = b"", b""
    is_open = True
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        selector.register(evidence_out, selectors.EVENT_READ)
        selector.register(checker.stdin, selectors.EVENT_WRITE)
        while is_open:
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready and time.monotonic() >= deadline:
                return None, evidence.decode(errors="replace").strip()
            for key, _ in ready:
                if key.fd == out:
                    answer += (chunk := os.read(out, 1 << 16))
                    is_open = bool(chunk)
                elif key.fd == evidence_out:
                    chunk = os.read(evidence_out, 1 << 16)
                    evidence = (evidence + chunk)[-_EVIDENCE_BYTES:]
                    if not chunk:
                        selector.unregister(evidence_out)
                else:
                    job = job[_written(key.fd, job) :]
                    if not job:
                        selector.unregister(checker.stdin)
                        checker.stdin.close()
    said = json.loads(answer) if answer.endswith(b"\n") else {}
    return said, evidence.decode(errors="replace").strip()


def _written(descriptor: int, data: memoryview) -> int:
    """How much was written of what a pipe takes at once; all of it if nobody reads."""
    try:
        return os.write(descriptor, data[: select.PIPE_BUF])
    except BrokenPipeError:
        return len(data)
