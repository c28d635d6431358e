"""Speed over the size of the tree as a picture: one panel per number of requests at once."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import vl_convert

from benchmarks.sglang.report_speed import cells

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.sglang.rows import Kept


def draw(kept: Kept, path: Path) -> None:
    """Write an SVG: tok/s of every tree over the chain's, medians over the rounds."""
    points = _gains(kept)
    shared = {"x": {"field": "budget", "type": "quantitative", "scale": {"type": "log", "base": 2}, "title": "nodes"}}
    shared["x"] |= {"axis": {"values": [4, 8, 16, 32, 64]}}
    gain = {"field": "gain", "type": "quantitative", "title": "tok/s ÷ chain", "scale": {"zero": False}}
    panels = [
        {
            "title": f"{concurrency} at once",
            "width": 220,
            "height": 180,
            "layer": [
                {
                    "data": {"values": [one for one in points if one["concurrency"] == concurrency]},
                    "mark": {"type": "line", "point": True},
                    "encoding": shared | {"y": gain, "color": {"field": "topk", "type": "nominal"}},
                },
                {
                    "data": {"values": [{"gain": 1.0}]},
                    "mark": {"type": "rule", "strokeDash": [4, 3]},
                    "encoding": {"y": gain},
                },
            ],
        }
        for concurrency in sorted({one["concurrency"] for one in points})
    ]
    page = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "concat": panels,
        "columns": 2,
        "background": "white",
    }
    path.write_text(vl_convert.vegalite_to_svg(json.dumps(page)), encoding="utf-8")


def _gains(kept: Kept) -> list[dict[str, Any]]:
    """Of every tree its gain at each number of users."""
    points = []
    for cell in cells(kept):
        budget, slash, topk = cell.setting.partition("/")
        if slash and topk.isdigit() and (ratios := cell.ratios("of_chain")):
            points.append({"budget": int(budget), "topk": topk, "concurrency": cell.users, "gain": median(ratios)})
    return points
