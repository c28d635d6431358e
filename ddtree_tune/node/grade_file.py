"""Grades saved replies: JSONL in, JSONL and a summary out, no server needed."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ddtree_tune.core.coding import PassRate, Problem, pass_at_ks, pass_rate
from ddtree_tune.core.errors import SpecError, StoreError
from ddtree_tune.core.judge import Answered, read_reply
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.grader import grade_replies
from ddtree_tune.node.problems import checked, json_lines, read_file
from ddtree_tune.node.sandbox import open_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddtree_tune.core.coding import Attempt
    from ddtree_tune.core.stats import Interval


class _SavedProblem(BaseModel):
    """What was asked."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    entry_point: str | None
    """Name that the program must define; null where there is nothing to run."""
    prompt: str
    tests: str
    kind: str = ""


class _SavedReply(BaseModel):
    """One line: what was asked, and what came. Further fields are the user's own."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    id: Annotated[str, Field(min_length=1)] | None = None
    """Number of the line when absent; the last line of an id and sample counts."""
    sample: Annotated[int, Field(ge=0)] = 0
    reply: dict[str, Any]
    problem: _SavedProblem
    time_limit_s: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)] | None = None
    """CPU time of this program; its wall time is twice that."""


@dataclass(frozen=True, slots=True)
class GradeSummary:
    """What a file of replies comes to."""

    rate: PassRate
    pass_at_k: tuple[tuple[int, float], ...]
    """(k, pass@k) for one and for all samples; empty where a problem has one."""
    sandbox: str
    repeated: int = 0
    """Lines that do not count, for a later one has their id and sample."""

    def fields(self) -> dict[str, Any]:
        """The summary as JSON holds it; a rate over nothing is null."""
        rate = self.rate
        return {
            "replies": rate.done,
            "repeated": self.repeated,
            "attempted": rate.attempted,
            "completed": rate.completed,
            "passed": rate.passed,
            "outcomes": dict(rate.outcomes),
            "pass_rate": rate.over_all,
            "pass_rate_95": rate.interval,
            "pass_rate_completed": rate.over_completed,
            "pass_rate_completed_95": rate.completed_interval,
            "pass_at_k": {str(k): value for k, value in self.pass_at_k},
            "sandbox": self.sandbox,
        }

    def lines(self) -> Iterator[str]:
        """The summary for people."""
        rate = self.rate
        for outcome, count in rate.outcomes:
            yield f"{outcome:<14} {count:>6}"
        yield f"over all       {_share(rate.passed, rate.attempted, rate.interval)}"
        yield f"over completed {_share(rate.passed, rate.completed, rate.completed_interval)}"
        for k, value in self.pass_at_k:
            yield f"{f'pass@{k}':<14} {value:.3f}"
        if self.repeated:
            yield f"repeated       {self.repeated:>6}, not counted: a later line has the same id and sample"
        yield f"sandbox        {self.sandbox}"


def grade_file(path: Path, out: Path | None = None, *, allow_weak: bool = False) -> GradeSummary:
    """Grade every reply of a file.

    Args:
        path: JSONL with ``reply`` and ``problem`` on each line.
        out: where to write id, outcome, reason, code and seconds of each, one line per reply.
        allow_weak: take a weak sandbox where no better one works.

    Raises:
        SpecError: the file cannot be read, a line of it is wrong, or ``out`` is no place for verdicts.
        GradeError: no sandbox works here.
        StoreError: ``out`` cannot be written.
    """
    if out is not None:
        out = out.resolve()  # what is renamed over a link or a device would take its place
        if out == path.resolve():
            raise SpecError(f"{out}: the verdicts must go into a file of their own, but these are the replies")
        if not out.parent.is_dir() or (out.exists() and not out.is_file()):
            raise SpecError(f"{out}: the verdicts must go into a file in a folder that exists, but this is none")
    answers = [_answer(where, fields) for where, fields in json_lines(read_file(path, what="replies"), str(path))]
    if not answers:
        raise SpecError(f"{path}: a file of replies must hold at least one, but it is empty")
    sandbox = open_sandbox(allow_weak=allow_weak)
    attempts = grade_replies(answers, sandbox, Limits())
    if out is not None:
        _write(out, attempts)
    rate = pass_rate(attempts)
    return GradeSummary(rate, pass_at_ks(attempts), sandbox.level, repeated=len(attempts) - rate.done)


def grade_command(path: Path, out: Path | None, *, as_json: bool, allow_weak: bool = False) -> int:
    """Grade a file and print the summary.

    Returns:
        0, or 1 if no reply could be graded at all.
    """
    summary = grade_file(path, out, allow_weak=allow_weak)
    print(json.dumps(summary.fields()) if as_json else "\n".join(summary.lines()))
    return 0 if summary.rate.attempted else 1


def _answer(where: str, fields: dict[str, Any]) -> Answered:
    line = checked(_SavedReply, fields, where)
    asked = line.problem
    problem = Problem(
        line.id or where.rpartition(":")[2], asked.entry_point or "", asked.prompt, asked.tests, asked.kind
    )
    return Answered(problem, read_reply(line.reply), sample=line.sample, cpu_s=line.time_limit_s)


def _write(out: Path, attempts: tuple[Attempt, ...]) -> None:
    """Write the verdicts beside and rename, so that half a file never stands there."""
    lines = [
        {"id": one.problem_id, "outcome": one.outcome, "reason": one.reason, "code": one.code, "seconds": one.seconds}
        for one in attempts
    ]
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        beside.replace(out)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StoreError(f"{out}: the verdicts must be written here, but got {error.strerror}") from None


def _share(passed: int, total: int, interval: Interval | None) -> str:
    if interval is None:
        return "no reply was graded"
    return f"{passed}/{total} = {passed / total:.3f}  (95 % {interval.low:.3f} to {interval.high:.3f})"
