"""The search as it went: every trial in order, the best so far, and the table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.objective import Yardstick, failure_class, observe
from ddtree_tune.core.page.charts import ACCENT, GREY, chart, hover, layer, named, number, palette, written
from ddtree_tune.core.page.model import Absent, Chart, Section, Table
from ddtree_tune.core.page.words import digits, knobs, short_id
from ddtree_tune.core.record import Origin
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.tables import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.conclusion import Conclusion, Row
    from ddtree_tune.core.page import charts
    from ddtree_tune.core.spec import SweepSpec

_HOW = (
    "Each trial's own score: the geometric mean over the cells of its output tok/s over no speculation's. The best of "
    "many single measurements is flattered by luck, so the answer rests on the finals where there are any."
)
COLOURS = {"baseline": GREY, "seed": "#0f766e", "search": "#2563eb", "final": ACCENT}


def trials_section(conclusion: Conclusion, spec: SweepSpec) -> Section:
    """A chart of scores in the order of asking, and the table."""
    title = "Trials in order"
    if not conclusion.rows:
        return Section("trials", title, _HOW, (Absent("No trial has ended yet."),))
    table = Table(
        (
            "trial",
            "setting",
            "why it ran",
            "status",
            ">x no speculation",
            ">x plain chain",
            ">tokens per step",
            ">passed",
            "note",
        ),
        tuple(_cells(row) for row in conclusion.rows),
    )
    return Section(
        "trials", title, _HOW, (Chart("Score by trial, and the best so far", _chart(conclusion, spec)), table)
    )


def best_so_far(rows: Sequence[Row], spec: SweepSpec) -> tuple[float | None, ...]:
    """The highest score of a setting that may be recommended, up to each trial; finals aside.

    Args:
        rows: every trial in the order of asking.
        spec: the sweep.
    """
    searched = [row.record for row in rows if row.record.proposal.origin is not Origin.FINAL]
    yardstick = Yardstick.of(spec, [record for record in searched if record.config == NO_SPECULATION])
    best: float | None = None
    found = []
    for row in rows:
        counts = row.record.proposal.origin is not Origin.FINAL and observe(row.record, yardstick).feasible
        if counts and row.vs_none is not None:
            best = row.vs_none if best is None else max(best, row.vs_none)
        found.append(best)
    return tuple(found)


def _chart(conclusion: Conclusion, spec: SweepSpec) -> dict[str, object]:
    best = best_so_far(conclusion.rows, spec)
    rows: list[charts.Row] = [
        {
            **knobs(row.record.config),
            "n": n,
            "trial": short_id(row.record),
            "origin": row.record.proposal.origin.value,
            "status": row.record.status.value,
            "score": row.vs_none,
            "best": top,
            "why": row.why or "",
        }
        for n, (row, top) in enumerate(zip(conclusion.rows, best, strict=True), 1)
    ]
    scored = written((row for row in rows if row["score"] is not None), score=3, best=3)
    x = number("n", "trial, in the order of asking", nice=False, padding=8) | {"axis": {"tickMinStep": 1}}
    y = number("score", "x no speculation")
    told = {
        "setting": "setting",
        "budget": "budget",
        "topk": "topk",
        "window": "window",
        "trial": "trial",
        "origin": "why it ran",
    }
    origins = {row["origin"] for row in scored}
    failed = [row for row in rows if row["score"] is None]
    return chart(
        rows,
        layer({"type": "rule", "strokeDash": [4, 4], "color": GREY}, [{"score": 1.0, "n": 1}], y=y),
        layer(
            {"type": "line", "interpolate": "step-after", "color": GREY, "strokeWidth": 1.5},
            [row for row in rows if row["best"] is not None],
            x=x,
            y={**y, "field": "best"},
        ),
        layer(
            {"type": "point", "filled": True, "size": 65},
            scored,
            x=x,
            y=y,
            color=named("origin", "why it ran", scale=palette(COLOURS, list(origins))),
            tooltip=hover(**told, score_text="x no speculation", best_text="best so far"),
        ),
        layer(
            {
                "type": "point",
                "shape": "M-1,-1L1,1M1,-1L-1,1",
                "size": 40,
                "color": "#b91c1c",
                "strokeWidth": 1.5,
                "yOffset": -6,
            },
            failed,
            x=x,
            y={"value": {"expr": "height"}},
            tooltip=hover(**told, status="status", why="why there is no score"),
        ),
    )


def _cells(row: Row) -> tuple[str, ...]:
    record = row.record
    rate = record.pass_rate
    return (
        short_id(record),
        record.config.label,
        record.proposal.origin.value,
        record.status.value,
        digits(row.vs_none),
        digits(row.vs_chain),
        digits(row.accept_len),
        f"{rate.passed}/{rate.attempted}" if rate else ABSENT,
        _note(row),
    )


def _note(row: Row) -> str:
    """What a reader of the row must know; the reasons of failures have their own section."""
    record = row.record
    failure = failure_class(record)
    notes = [str(failure)] if failure is not None else []
    if failure is None and row.why is not None:
        notes.append(row.why)
    if record.proposal.part is not None:
        notes.append(record.proposal.part)
    if record.gate is not None and record.gate.lossless is False:
        notes.append("greedy text differs from no speculation's")
    notes += [str(one) for one in record.differences]
    if record.graphs and record.graphs.eager:
        share = record.graphs.eager / (record.graphs.eager + record.graphs.graphed)
        notes.append(f"{share:.0%} of its decoding outside CUDA graphs")
    return "; ".join(notes)
