"""Runs one program in a sandbox; the levels there are, and limits for programs that are quick."""

import shutil
from textwrap import dedent, indent

import pytest

from ddtree_tune.core.coding import Outcome, Problem
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.jail.confine import landlock_version
from ddtree_tune.node.sandbox import job_for

LEVELS = [
    pytest.param("bwrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")),
    pytest.param("landlock+seccomp", marks=pytest.mark.skipif(landlock_version() == 0, reason="needs Landlock")),
]
QUICK = Limits(cpu_s=15.0, wall_s=60.0)
"""Far beyond what a quick program takes, on a busy machine too: a gigabyte alone can cost five seconds."""
SECOND = Limits(cpu_s=1.0, wall_s=30.0)


def run(sandbox, code, tests, *, prompt="", limits=QUICK):
    """The verdict."""
    body = indent(dedent(tests).strip(), "    ")
    problem = Problem("p", "f", prompt, f"def check(candidate):\n{body}\n")
    return sandbox.run(job_for(problem, dedent(code)), limits)


def passes(sandbox, code, tests, **options):
    """Whether the verdict is that it passed is asserted."""
    verdict = run(sandbox, code, tests, **options)
    assert verdict.outcome is Outcome.PASS, verdict.reason
