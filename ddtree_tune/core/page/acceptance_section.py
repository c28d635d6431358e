"""Why a setting is fast or not: what a verify step brings, and what it costs, by its width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.page.charts import chart, hover, layer, named, number, written
from ddtree_tune.core.page.model import Absent, Chart, Section
from ddtree_tune.core.page.words import knobs, short_id
from ddtree_tune.core.steps import step_points, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.page.charts import Row
    from ddtree_tune.core.page.model import Block
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec

_HOW = (
    "Speed is the tokens that a step commits over the time that it takes. Both grow with the tokens that are verified "
    "at once: a tree's budget and one, a chain's block, 1 without speculation."
)
_WIDTH = "tokens verified per step (budget + 1)"
_CHAIN = "chain"
_POINT = {"type": "point", "filled": True, "size": 60, "opacity": 0.8}


def acceptance_section(records: Sequence[TrialRecord], conclusion: Conclusion, spec: SweepSpec) -> Section:
    """Acceptance length and step time against the width of the verify pass."""
    return Section("acceptance", "Acceptance and step time", _HOW, (_acceptance(conclusion), _steps(records, spec)))


def _acceptance(conclusion: Conclusion) -> Block:
    rows = [
        {
            **knobs(row.record.config),
            "trial": short_id(row.record),
            "width": width,
            "accept_len": row.accept_len,
            "candidates": str(row.record.config.topk) if row.record.config.algorithm is Algorithm.TREE else _CHAIN,
        }
        for row in conclusion.rows
        if row.accept_len is not None and (width := width_of(row.record.effective)) is not None
    ]
    if not rows:
        return Absent("Acceptance lengths: no complete trial with speculation reports its verify steps.")
    topks = sorted({row.record.config.topk or 0 for row in conclusion.rows})
    names = [name for name in (*map(str, topks), _CHAIN) if name in {row["candidates"] for row in rows}]
    spec = chart(
        written(rows, accept_len=2),
        layer(
            _POINT,
            x=_width(),
            y=number("accept_len", "tokens committed per step"),
            color=named("candidates", "topk", scale={"scheme": "dark2", "domain": names}),
            tooltip=hover(
                setting="setting",
                budget="budget",
                topk="topk",
                window="window",
                trial="trial",
                accept_len_text="tokens per step, mean of the cells",
            ),
        ),
    )
    return Chart("Acceptance length, mean of each trial's cells", spec)


def _steps(records: Sequence[TrialRecord], spec: SweepSpec) -> Block:
    cells = {cell.cell_id: cell for cell in spec.load.cells()}
    rows: list[Row] = []
    for record in records:
        for point in step_points([record], records):
            cell = cells.get(point.cell_id)
            if cell is not None and cell.concurrency is not None:
                rows.append(
                    {
                        **knobs(record.config),
                        "trial": short_id(record),
                        "width": point.width,
                        "step_ms": 1e3 * point.step_s,
                        "users": str(cell.concurrency),
                        "context": str(cell.context),
                    }
                )
    if not rows:
        return Absent("Step times: no trial has a scored cell with requests in flight, acceptance and latencies known.")
    users = sorted({row["users"] for row in rows}, key=int)
    contexts = sorted({row["context"] for row in rows}, key=int)
    drawn = chart(
        written(rows, step_ms=2),
        layer(
            _POINT,
            x=_width(),
            y=number("step_ms", "ms per verify step", type="log"),
            color=named("users", "requests in flight", scale={"scheme": "dark2", "domain": users}),
            shape=named("context", "context", scale={"domain": contexts}),
            tooltip=hover(
                setting="setting",
                trial="trial",
                users="requests in flight",
                context="context",
                step_ms_text="ms per step",
            ),
        ),
    )
    return Chart("Time of a verify step, every cell of every trial", drawn)


def _width() -> dict[str, object]:
    return number("width", _WIDTH, type="log", base=2)
