"""What became of the coding problems: outcomes by trial, and pass rates with intervals by setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.coding import Outcome, pass_rate
from ddtree_tune.core.coding_lines import outcome_text
from ddtree_tune.core.page.charts import chart, hover, layer, named, palette
from ddtree_tune.core.page.model import Absent, Chart, Section, Table
from ddtree_tune.core.page.words import short_id
from ddtree_tune.core.tables import ABSENT, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.coding_result import CodingResult
    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.page.charts import Row
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.stats import Interval

_HOW = (
    "Speculation must not change what a model can do. The same problems under every setting, at the concurrency that "
    "is served; a truncated reply is not a wrong one, and a broken request or sandbox is not the model's."
)
COLOURS = {
    Outcome.PASS.value: "#15803d",
    Outcome.WRONG_ANSWER.value: "#dc2626",
    Outcome.EXCEPTION.value: "#f97316",
    Outcome.SYNTAX_ERROR.value: "#a21caf",
    Outcome.TIMEOUT.value: "#ca8a04",
    Outcome.NO_CODE.value: "#7c2d12",
    Outcome.TRUNCATED.value: "#64748b",
    Outcome.REQUEST_ERROR.value: "#94a3b8",
    Outcome.HARNESS_ERROR.value: "#cbd5e1",
}
_ROW_HEIGHT, _LOW_ROW = 20, 13
"""Pixels of a trial, and of one among many."""
_MANY = 24
_HEAD = (
    "setting",
    ">passed",
    "others",
    ">over all",
    ">over completed",
    ">less no speculation",
    ">McNemar p",
    "greedy text",
)


def coding_section(records: Sequence[TrialRecord], conclusion: Conclusion, spec: SweepSpec) -> Section:
    """Bars by trial, a table by setting."""
    trials = [record for record in records if record.attempts]
    if not trials:
        why = "No problems were to be graded (coding: null)." if spec.coding is None else "No trial was graded yet."
        return Section("coding", "Coding", _HOW, (Absent(why),))
    rows: list[Row] = [
        {"trial": f"{short_id(record)} {cut(record.config.label, 24)}", "outcome": outcome, "count": count, "order": n}
        for record in trials
        for outcome, count in pass_rate(record.attempts).outcomes
        for n, name in enumerate(COLOURS)
        if name == outcome
    ]
    colours = palette(COLOURS, [row["outcome"] for row in rows])
    bars = chart(
        rows,
        layer(
            "bar",
            x={"field": "count", "type": "quantitative", "title": "problems", "stack": "zero"},
            y=named("trial", None, axis={"labelLimit": 150}),
            color=named("outcome", None, scale=colours),
            order={"field": "order", "type": "quantitative"},
            tooltip=hover(trial="trial", outcome="outcome", count="problems"),
        ),
        height=(_ROW_HEIGHT if len(trials) <= _MANY else _LOW_ROW) * len(trials),
    )
    table = Table(_HEAD, tuple(_cells(one) for one in conclusion.coding), "By setting, with 95 % intervals")
    return Section("coding", "Coding", _HOW, (Chart("Outcomes by trial", bars), table))


def _cells(one: CodingResult) -> tuple[str, ...]:
    rate, pair = one.rate, one.paired
    difference = ABSENT
    if pair is not None and pair.difference is not None and pair.interval is not None:
        difference = f"{pair.difference:+.2f} ({pair.interval.low:+.2f} to {pair.interval.high:+.2f})"
    return (
        one.config.label,
        f"{rate.passed}/{rate.attempted}",
        outcome_text(rate).partition(": ")[2],
        _with(rate.over_all, rate.interval),
        _with(rate.over_completed, rate.completed_interval),
        difference,
        f"{pair.p_value:.2f}" if pair is not None and pair.total else ABSENT,
        f"{one.likeness.same} of {one.likeness.compared} the same" if one.likeness is not None else ABSENT,
    )


def _with(value: float | None, interval: Interval | None) -> str:
    return ABSENT if value is None or interval is None else f"{value:.2f} ({interval.low:.2f} to {interval.high:.2f})"
