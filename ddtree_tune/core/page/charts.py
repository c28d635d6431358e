"""The grammar that all charts of the page share: Vega-Lite as plain data.

Nothing is aggregated, filtered or computed by the chart: a row is a mark. What a chart is told beside
its rows are constants of this package, so text from outside reaches it as data only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddtree_tune.core.page.words import digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HEIGHT = 300
GREY = "#8a94a6"
INK = "#1f2933"
ACCENT = "#c2410c"
_CONFIG: dict[str, Any] = {
    "font": "system-ui, sans-serif",
    "view": {"stroke": "#d9dee7"},
    "axis": {"gridColor": "#edf0f5", "domainColor": GREY, "tickColor": GREY, "labelColor": INK, "titleColor": INK},
    "legend": {"orient": "bottom", "labelColor": INK, "titleColor": INK, "columns": 4, "labelLimit": 140},
    "bar": {"discreteBandSize": 14},
}

Row = dict[str, Any]
"""One mark: plain values by name; None where something is not known."""


def chart(rows: Sequence[Row], *layers: Mapping[str, Any], height: int = HEIGHT) -> dict[str, Any]:
    """A chart as wide as the page lets it be.

    Args:
        rows: its data.
        layers: what is drawn, from the back to the front; one that has data of its own is left out where
            these are empty.
        height: of the plot, in pixels.
    """
    return {
        "width": "container",
        "height": height,
        "background": None,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": list(rows)},
        "layer": [one for one in layers if one.get("data", {"values": rows})["values"]],
        "config": _CONFIG,
    }


def layer(mark: str | Mapping[str, Any], data: Sequence[Row] | None = None, **encoding: Any) -> dict[str, Any]:
    """One layer.

    Args:
        mark: its type, or its type with constants.
        data: rows of its own; the chart's when None.
        encoding: channel by channel.
    """
    drawn: dict[str, Any] = {"mark": mark, "encoding": encoding}
    return drawn if data is None else drawn | {"data": {"values": list(data)}}


def number(field: str, title: str, **scale: Any) -> dict[str, Any]:
    """A quantity on an axis that need not begin at 0."""
    shape = {"nice": True, **scale} if "type" in scale else {"zero": False, "nice": True, **scale}  # a log has no 0
    return {"field": field, "type": "quantitative", "title": title, "scale": shape}


def named(field: str, title: str | None, **more: Any) -> dict[str, Any]:
    """A name, in the order in which names come."""
    return {"field": field, "type": "nominal", "title": title, "sort": None, **more}


def palette(colours: Mapping[str, str], present: Sequence[Any]) -> dict[str, Any]:
    """A scale that gives each name its own colour, those that are present alone."""
    shown = [name for name in colours if name in present]
    return {"domain": shown, "range": [colours[name] for name in shown]}


def hover(**titles: str) -> list[dict[str, Any]]:
    """What is shown under the pointer: texts by field, each with its title."""
    return [{"field": field, "type": "nominal", "title": title} for field, title in titles.items()]


def written(rows: Iterable[Row], **places: int) -> list[Row]:
    """Rows with the text of some numbers beside them, as in ``score_text``, for the pointer.

    A chart that formats numbers itself writes 0 where one is not known.

    Args:
        rows: the marks.
        places: digits behind the point, by field.
    """
    return [row | {f"{field}_text": digits(row.get(field), count) for field, count in places.items()} for row in rows]
