"""Speed over the size of the tree as a picture: one panel per number of requests at once."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import vl_convert

from benchmarks.sglang.report_speed import cells
from benchmarks.sglang.settings import CHAIN

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.sglang.rows import Kept


def draw(kept: Kept, path: Path) -> None:
    """Write an SVG: tok/s of every tree over no speculation's, and the chain's as a rule."""
    base, points = _gains(kept)
    shared = {"x": {"field": "budget", "type": "quantitative", "scale": {"type": "log", "base": 2}, "title": "nodes"}}
    shared["x"] |= {"axis": {"values": [4, 8, 16, 32, 64]}}
    gain = {"field": "gain", "type": "quantitative", "title": "tok/s ÷ no speculation", "scale": {"zero": False}}
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
                    "data": {"values": [{"gain": base[concurrency], "is": "chain"}]},
                    "mark": {"type": "rule", "strokeDash": [4, 3]},
                    "encoding": {"y": gain},
                },
            ],
        }
        for concurrency in sorted(base)
    ]
    page = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "concat": panels,
        "columns": 2,
        "background": "white",
    }
    path.write_text(vl_convert.vegalite_to_svg(json.dumps(page)), encoding="utf-8")


def _gains(kept: Kept) -> tuple[dict[int, float], list[dict[str, Any]]]:
    """The chain's gain by number of users, and every tree's: medians over repeats of tok/s against the same round."""
    measured = [(cell, median(ratios)) for cell in cells(kept) if (ratios := cell.ratios("of_none"))]
    chain = {cell.users: gain for cell, gain in measured if cell.setting == CHAIN.name}
    points = []
    for cell, gain in measured:
        budget, slash, topk = cell.setting.partition("/")
        if slash and topk.isdigit():
            points.append({"budget": int(budget), "topk": topk, "concurrency": cell.users, "gain": gain})
    return chain, points
