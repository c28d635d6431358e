"""The matrix: what is best for each context and number of users, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.headline import gain_text
from ddtree_tune.core.page.charts import chart, hover, layer, named
from ddtree_tune.core.page.model import Absent, Chart, Section, Table
from ddtree_tune.core.page.words import certainty_text, digits
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.tables import ABSENT, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.page.charts import Row
    from ddtree_tune.core.winners import CellWinner

_HOW = (
    "What to run where contexts and numbers of users are known: one winner per cell, and how much faster it is than no "
    "speculation there. A tie is not told apart from its rival."
)
_ROW_HEIGHT = 62
_DARK = 0.6
"""Share of the colours' range above which letters are white."""


def cells_section(conclusion: Conclusion) -> Section:
    """A heat map, and the same as a table with intervals."""
    title = "Best for each cell"
    if not any(cell.config for cell in conclusion.cells):
        return Section(
            "cells", title, _HOW, (Absent(f"No cell has a winner: {conclusion.why or 'none was compared'}."),)
        )
    table = Table(
        (">context", ">in flight", "setting", ">tok/s", ">x no speculation", ">x plain chain", "how sure"),
        tuple(
            (
                str(cell.context),
                _arrival(cell),
                cell.config.label if cell.config else ABSENT,
                digits(cell.output_tps, 0),
                _over_none(cell),
                gain_text(cell.vs_chain),
                certainty_text(cell),
            )
            for cell in conclusion.cells
        ),
    )
    return Section(
        "cells", title, _HOW, (Chart("Winner and gain over no speculation", _heat_map(conclusion.cells)), table)
    )


def _heat_map(cells: Sequence[CellWinner]) -> dict[str, object]:
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


def _row(cell: CellWinner, high: float) -> Row:
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


def _over_none(cell: CellWinner) -> str:
    """The gain with its interval; no speculation has none over itself."""
    return digits(1.0) if cell.config == NO_SPECULATION else gain_text(cell.vs_none)


def _arrival(cell: CellWinner) -> str:
    """Requests in flight, or the rate of an open loop."""
    if cell.concurrency is not None:
        return str(cell.concurrency)
    return f"{cell.cell_id.rpartition('_r')[2]} per s"
