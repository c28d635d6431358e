"""What one user sees against what the machine gives in all: every trial a point, cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.coherence import judged
from ddtree_tune.core.frontier import frontier
from ddtree_tune.core.page.charts import ACCENT, GREY, INK, chart, hover, layer, named, number, written
from ddtree_tune.core.page.model import Absent, Chart, Section, Text
from ddtree_tune.core.page.words import knobs, short_id
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.speedup import BASELINES
from ddtree_tune.core.tables import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.frontier import FrontierPoint
    from ddtree_tune.core.page.charts import Row
    from ddtree_tune.core.record import TrialRecord

_HOW = (
    "Right is faster for each user, up is more in all; more requests in flight move a setting up and to the left. "
    "Crosses are baselines. A ring marks what no other setting of the same context beats at both; lines join one "
    "setting's medians over the numbers of users."
)

_PLACES = {"user_tps": 1, "output_tps": 1, "accept_len": 2, "passed": 2}
"""Digits of what stands under the pointer."""


def frontier_section(records: Sequence[TrialRecord], conclusion: Conclusion) -> Section:
    """A chart per context."""
    gpus = gpus_of(records)
    passed = {one.config: one.rate.over_all for one in conclusion.coding}
    rows = _rows(records, passed, gpus or 1)
    if not rows:
        why = "No complete trial has a scored cell in which requests ended."
        return Section("frontier", "Frontier", _HOW, (Absent(why),))
    rates = sorted({rate for rate in passed.values() if rate is not None})
    unit = f"tok/s per GPU (of {gpus})" if gpus else "tok/s per node"
    shown = [*BASELINES, *([conclusion.best_tree.config] if conclusion.best_tree else [])]
    points = frontier(records)
    charts = [
        Chart(
            f"Context {context} tokens",
            _chart(
                [row for row in rows if row["context"] == context],
                [one for one in points if one.context == context],
                unit=unit,
                share=gpus or 1,
                rates=rates,
                shown=shown,
            ),
        )
        for context in sorted({row["context"] for row in rows})
    ]
    no_rate = () if rates else (Text("Points have no colour: no coding evaluation gave a pass rate."),)
    return Section("frontier", "Frontier", _HOW, (*no_rate, *charts))


def gpus_of(records: Sequence[TrialRecord]) -> int | None:
    """GPUs of a node; None where there are none, or nodes differ."""
    counts = {len(record.fingerprint.gpus) for record in records if record.fingerprint is not None}
    return (counts.pop() or None) if len(counts) == 1 else None


def _rows(records: Sequence[TrialRecord], passed: Mapping[EngineConfig, float | None], share: int) -> list[Row]:
    """One per scored cell of a complete trial."""
    rows: list[Row] = [
        {
            **knobs(record.config),
            "trial": short_id(record),
            "origin": record.proposal.origin.value,
            "baseline": record.config in BASELINES,
            "context": cell.metrics.context,
            "users": _users(cell.metrics.concurrency),
            "user_tps": cell.metrics.user_tps,
            "output_tps": cell.metrics.output_tps / share,
            "accept_len": cell.metrics.accept_len,
            "passed": passed.get(record.config),
        }
        for record in judged(records)
        if record.status is TrialStatus.COMPLETE
        for cell in record.cells
        if cell.metrics.scored and cell.metrics.user_tps is not None and cell.metrics.output_tps is not None
    ]
    return written(rows, **_PLACES)


def _chart(
    rows: list[Row],
    points: list[FrontierPoint],
    *,
    unit: str,
    share: int,
    rates: Sequence[float],
    shown: Sequence[EngineConfig],
) -> dict[str, object]:
    x = number("user_tps", "tok/s per user", domainMin=_floor(rows, "user_tps"))
    y = number("output_tps", unit, domainMin=_floor(rows, "output_tps"))
    medians = written((_median(point, share) for point in points), **_PLACES)
    joined = [row for row, point in zip(medians, points, strict=True) if point.config in shown]
    ends = {row["setting"]: row for row in reversed(joined)}  # where there are fewest users, and most room
    rings = [row for row, point in zip(medians, points, strict=True) if point.on_frontier]
    colour = (
        {"value": ACCENT}
        if not rates
        else {
            "condition": {
                "test": "isValid(datum.passed)",
                "field": "passed",
                "type": "quantitative",
                "title": "share of problems passed",
                "scale": {"scheme": "viridis", "domain": _domain(rates)},
            },
            "value": GREY,
        }
    )
    tooltip = hover(
        setting="setting",
        budget="budget",
        topk="topk",
        window="window",
        trial="trial",
        origin="why it ran",
        users="requests in flight",
        user_tps_text="tok/s per user",
        output_tps_text=unit,
        accept_len_text="tokens per verify step",
        passed_text="share of problems passed",
    )
    circle = {"type": "point", "filled": True, "size": 55, "opacity": 0.85}
    trees, baselines = ([row for row in rows if row["baseline"] is kind] for kind in (False, True))
    line = {"type": "line", "strokeWidth": 1.2, "opacity": 0.7, "color": GREY}
    return chart(
        rows,
        layer(line, joined, x=x, y=y, detail={"field": "setting"}, order={"field": "order", "type": "quantitative"}),
        layer(circle, trees, x=x, y=y, color=colour, tooltip=tooltip),
        layer({**circle, "shape": "cross", "size": 90}, baselines, x=x, y=y, color=colour, tooltip=tooltip),
        layer({"type": "point", "size": 170, "color": INK, "strokeWidth": 1.2}, rings, x=x, y=y, tooltip=tooltip),
        layer(
            {"type": "text", "dy": 15, "fontSize": 10, "color": INK, "limit": 110},
            list(ends.values()),
            x=x,
            y=y,
            text=named("setting", None),
        ),
    )


def _median(point: FrontierPoint, share: int) -> Row:
    return {
        **knobs(point.config),
        "trial": f"median of {point.trials}" if point.trials > 1 else "the only one",
        "origin": ABSENT,
        "order": point.concurrency or 0,
        "users": _users(point.concurrency),
        "user_tps": point.user_tps,
        "output_tps": point.output_tps / share,
    }


def _floor(rows: Sequence[Row], field: str) -> float:
    """Where an axis begins: with room for a name below the lowest point, but never below 0."""
    values = [row[field] for row in rows]
    return float(max(0.0, min(values) - 0.12 * (max(values) - min(values))))


def _users(concurrency: int | None) -> str:
    return "open loop" if concurrency is None else str(concurrency)


def _domain(rates: Sequence[float]) -> list[float]:
    """The range of the colours: that of the rates, but a tenth at least, so that chance is not made a rainbow."""
    low, high = rates[0], rates[-1]
    spare = max(0.0, 0.1 - (high - low)) / 2
    return [max(0.0, low - spare), min(1.0, high + spare)]
