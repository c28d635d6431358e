"""The matrix: what is best for each context and number of users, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.cell_table import cell_lines
from ddtree_tune.core.headline import gain_text, schedule_text
from ddtree_tune.core.page.charts import chart, hover, layer, named
from ddtree_tune.core.page.model import Absent, Chart, Code, Section, Table, Text
from ddtree_tune.core.page.words import digits, short_id
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.tables import ABSENT, cut, money
from ddtree_tune.core.winners import certainty_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.page.charts import Row
    from ddtree_tune.core.price import PriceSpec
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.winners import Winner

_HOW = (
    "What to run where contexts and numbers of users are known: one winner per cell, and how much faster it is than no "
    "speculation there. A tie is not told apart from its rival."
)
_ROW_HEIGHT = 62
_DARK = 0.6
"""Share of the colours' range above which letters are white."""


def cells_section(records: Sequence[TrialRecord], conclusion: Conclusion, price: PriceSpec | None) -> Section:
    """A heat map, the same as a table with intervals, limits that are not kept, and all numbers of what matters."""
    title, details = "Best for each cell", tuple(_details(records, conclusion))
    if not any(cell.config for cell in conclusion.cells):
        why = Absent(f"No cell has a winner: {conclusion.why or 'none was compared'}.")
        return Section("cells", title, _HOW, (why, *details))
    table = Table(
        (
            ">context",
            ">in flight",
            "setting",
            ">tok/s",
            *((f">{price.currency} per million",) if price else ()),
            ">x no speculation",
            ">x plain chain",
            "how sure",
        ),
        tuple(
            (
                str(cell.context),
                _arrival(cell),
                cell.config.label if cell.config else ABSENT,
                digits(cell.output_tps, 0),
                *((money(price.per_million(cell.output_tps)) if cell.output_tps else ABSENT,) if price else ()),
                _over_none(cell),
                gain_text(cell.vs_chain),
                certainty_text(cell),
            )
            for cell in conclusion.cells
        ),
    )
    heat_map = Chart("Winner and gain over no speculation", _heat_map(conclusion.cells))
    return Section("cells", title, _HOW, (heat_map, table, *_bands(conclusion), *_broken(conclusion), *details))


def _bands(conclusion: Conclusion) -> Iterator[Table | Text]:
    """What is best for each number of requests in flight, and all of them together."""
    rows = tuple(
        (
            str(band.concurrency),
            band.config.label if band.config else ABSENT,
            _over_none(band),
            gain_text(band.vs_chain),
            certainty_text(band),
        )
        for band in conclusion.bands
    )
    head = (">in flight", "setting", ">x no speculation", ">x plain chain", "how sure")
    yield Table(head, rows, "Best for each number of requests in flight, over its contexts")
    if whole := schedule_text(conclusion):
        yield Text(whole)


def _broken(conclusion: Conclusion) -> Iterator[Table]:
    """Latency limits that settings do not keep."""
    rows = tuple(
        (one.config.label, limit.cell_id, f"{limit.summary[:-2]}_p95_s", f"{limit.seconds:.3g}", f"{limit.limit_s:g}")
        for one in conclusion.settings
        for limit in one.broken
    )
    if rows:
        head = ("setting", "cell", "limit", ">s", ">at most s")
        yield Table(head, rows, "Latency limits that are not kept (95th percentiles)")


def _details(records: Sequence[TrialRecord], conclusion: Conclusion) -> Iterator[Code]:
    """Every number of the last trial of the best setting, of the best tree and of no speculation."""
    found = (one.config for one in (conclusion.best, conclusion.best_tree) if one is not None)
    for config in dict.fromkeys((*found, NO_SPECULATION)):
        last = [one for one in records if one.config == config and one.status is TrialStatus.COMPLETE][-1:]
        for record in last:
            lines = cell_lines([cell.metrics for cell in record.cells])
            yield Code("\n".join(lines), f"Latencies, counts and flags of {config.label}, trial {short_id(record)}")


def _heat_map(cells: Sequence[Winner]) -> dict[str, object]:
    top = max((cell.vs_none.ratio for cell in cells if cell.vs_none), default=1.0)
    high = max(top, 1.2)
    rows = [_row(cell, high) for cell in cells]
    x = named("users", "requests in flight", type="ordinal", axis={"orient": "top", "labelAngle": 0})
    y = named("context", "context (tokens)", type="ordinal")
    scale = {"scheme": "teals", "domain": [1.0, high], "clamp": True}
    colour = {
        "condition": {
            "test": "isValid(datum.gain)",
            "field": "gain",
            "type": "quantitative",
            "title": "x no speculation",
            "scale": scale,
        },
        "value": "#eef0f3",
    }
    ink = {"condition": {"test": "datum.dark", "value": "white"}, "value": "#1f2933"}
    tooltip = hover(
        context="context",
        users="requests in flight",
        setting="setting",
        tps="tok/s",
        told="x no speculation",
        sure="how sure",
    )
    text = {"type": "text", "baseline": "middle", "fontSize": 11}
    return chart(
        rows,
        layer({"type": "rect", "stroke": "white", "strokeWidth": 2}, x=x, y=y, color=colour, tooltip=tooltip),
        layer({**text, "dy": -8, "fontWeight": "bold", "fontSize": 12}, x=x, y=y, color=ink, text=named("shown", None)),
        layer({**text, "dy": 9, "limit": 92}, x=x, y=y, color=ink, text=named("setting", None)),
        height=_ROW_HEIGHT * len({row["context"] for row in rows}),
    )


def _row(cell: Winner, high: float) -> Row:
    gain = cell.vs_none.ratio if cell.vs_none else None
    return {
        "context": str(cell.context),
        "users": _arrival(cell),
        "setting": cut(cell.config.label, 40) if cell.config else "not scored",
        "gain": gain,
        "shown": "" if gain is None else f"{gain:.2f}",
        "told": _over_none(cell),
        "tps": digits(cell.output_tps, 0),
        "sure": certainty_text(cell),
        "dark": gain is not None and gain > 1 + _DARK * (high - 1),
    }


def _over_none(cell: Winner) -> str:
    """The gain with its interval; no speculation has none over itself."""
    return digits(1.0) if cell.config == NO_SPECULATION else gain_text(cell.vs_none)


def _arrival(cell: Winner) -> str:
    """Requests in flight, or the rate of an open loop."""
    if cell.concurrency is not None:
        return str(cell.concurrency)
    return f"{cell.cells[0].rpartition('_r')[2]} per s"
