"""What broke, class by class, whose fault that is, and each trial's reason in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.errors import FailureClass, blame
from ddtree_tune.core.objective import failure_class
from ddtree_tune.core.page.model import Absent, Code, Section, Table
from ddtree_tune.core.page.words import short_id
from ddtree_tune.core.record import TrialStatus

if TYPE_CHECKING:
    from ddtree_tune.core.conclusion import Conclusion, Row
    from ddtree_tune.core.page.model import Block

_HOW = (
    "A failed trial is a row: its class, where it broke, and one sentence. The configuration's own failures are told "
    "to the search; nobody's were tried once more; the node's and ours teach nothing."
)
_TAIL_LINES = 12


def failures_section(conclusion: Conclusion) -> Section:
    """A table per class, then the trials that completed without a score."""
    classes: dict[FailureClass, list[Row]] = {}
    for row in conclusion.rows:
        if (failure := failure_class(row.record)) is not None:
            classes.setdefault(failure, []).append(row)
    blocks: list[Block] = []
    for failure, rows in sorted(classes.items(), key=lambda one: (-len(one[1]), one[0])):
        title = f"{failure.value}: {len(rows)} trial{'s' if len(rows) > 1 else ''}, {_fault(failure)}"
        blocks.append(Table(("trial", "setting", "stage", "reason"), tuple(_cells(row) for row in rows), title))
        if tail := _tail(rows[-1]):
            blocks.append(Code(tail, f"The server's last lines, trial {short_id(rows[-1].record)}"))
    unscored = [row for row in conclusion.rows if failure_class(row.record) is None and row.why is not None]
    if unscored:
        lines = tuple((short_id(row.record), row.record.config.label, _kind(row), row.why or "") for row in unscored)
        blocks.append(Table(("trial", "setting", "status", "why"), lines, "Without a score"))
    nothing = Absent("No trial failed." if conclusion.rows else "No trial has ended yet.")
    return Section("failures", "Failures", _HOW, tuple(blocks) or (nothing,))


def _fault(failure: FailureClass) -> str:
    who = blame(failure).value
    return {"configuration": "the configuration's fault", "node": "the node's fault", "ours": "our own fault"}.get(
        who, "nobody's fault for certain"
    )


def _cells(row: Row) -> tuple[str, ...]:
    failure = row.record.failure
    reason = failure.reason if failure else "the process that ran it was cut off before it could say"
    return short_id(row.record), row.record.config.label, failure.stage if failure else "", reason


def _tail(row: Row) -> str:
    failure = row.record.failure
    return "\n".join(failure.log_tail.splitlines()[-_TAIL_LINES:]) if failure else ""


def _kind(row: Row) -> str:
    return "stopped early" if row.record.status is TrialStatus.STOPPED else row.record.status.value
