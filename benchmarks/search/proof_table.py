"""Sweeps of the proof: kept, as a table and as a plot."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import vl_convert

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

WITHIN = (0.02, 0.01)
DOZEN = 12
CAP = 60
"""Trials after which a sweep that has not come close is over."""
HEAD = (
    "surface | search | sweeps | trials to 2 % | trials to 1 % | node-minutes to 2 % | to 1 % "
    f"| of the best after {DOZEN} trials | failed |"
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep."""

    surface: str
    search: str
    seed: int
    gaps: list[float]
    """Logarithm of best over recommended after each trial, baselines included; infinite before there is one."""
    minutes: list[float]
    """Node time spent until then."""
    failed: int
    """Trials that did not measure anything."""

    def reached(self, within: float) -> int | None:
        """Trials until the recommendation is so close to the best; None if it never was."""
        return next((n for n, gap in enumerate(self.gaps, 1) if gap <= -math.log1p(-within)), None)


class Kept:
    """The sweeps of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = pq.read_table(path).to_pylist() if path.exists() else []
        self.sweeps = [Sweep(**row) for row in rows]

    def has(self, surface: str, search: str, seed: int) -> bool:
        """Whether a sweep was run."""
        return any((one.surface, one.search, one.seed) == (surface, search, seed) for one in self.sweeps)

    def add(self, sweep: Sweep) -> None:
        """Take in one more."""
        self.sweeps.append(sweep)

    def write(self) -> None:
        """Write all beside and rename."""
        reals = pa.list_(pa.float32())
        names = [("surface", pa.string()), ("search", pa.string()), ("seed", pa.int16())]
        schema = pa.schema([*names, ("gaps", reals), ("minutes", reals), ("failed", pa.int16())])
        beside = self._path.with_name(f".{self._path.name}")
        pq.write_table(pa.Table.from_pylist([asdict(one) for one in self.sweeps], schema=schema), beside)
        beside.replace(self._path)


def groups(sweeps: Sequence[Sweep]) -> Iterator[tuple[str, str, list[Sweep]]]:
    """The sweeps of each surface and search, in the order in which they came."""
    for surface in dict.fromkeys(one.surface for one in sweeps):
        for search in dict.fromkeys(one.search for one in sweeps):
            if found := [one for one in sweeps if (one.surface, one.search) == (surface, search)]:
                yield surface, search, found


def table(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """The table, as Markdown: medians with the quartiles in brackets."""
    yield f"| {HEAD}"
    yield "|---" * HEAD.count("|") + "|"
    for surface, search, found in groups(sweeps):
        reached = [np.asarray([_or_never(one.reached(within)) for one in found]) for within in WITHIN]
        spent = [
            np.asarray([math.inf if (n := one.reached(within)) is None else one.minutes[n - 1] for one in found])
            for within in WITHIN
        ]
        ratio = np.exp([-one.gaps[min(DOZEN, len(one.gaps)) - 1] for one in found])
        cells = [
            *(_quartiles(values, f"{CAP}", "{:.0f}") for values in reached),
            *(_quartiles(values, "", "{:.3g}") for values in spent),
            f"{np.median(ratio):.3f} ({np.quantile(ratio, 0.1):.3f})",
            f"{np.mean([one.failed for one in found]):.1f}",
        ]
        yield f"| {surface} | {search} | {len(found)} | {' | '.join(cells)} |"


def _or_never(trials: int | None) -> float:
    return math.inf if trials is None else trials


def _quartiles(values: NDArray[np.float64], most: str, form: str) -> str:
    """Median (lower, upper quartile), each the value of a sweep."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), method="higher")
    never = f"> {most}" if most else "-"
    words = [never if math.isinf(one) else form.format(one) for one in (low, middle, high)]
    return f"{words[1]} ({words[0]}, {words[2]})"


def plot(sweeps: Sequence[Sweep], path: Path) -> None:
    """Share of sweeps whose recommendation has been within 2 % of the best, over trials, a panel per surface."""
    rows = [
        {"surface": surface, "search": search, "trials": n, "share": share}
        for surface, search, found in groups(sweeps)
        for n, share in enumerate(_shares(found), 1)
    ]
    order = list(dict.fromkeys(row["surface"] for row in rows))
    chart = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": rows},
        "facet": {"field": "surface", "type": "nominal", "sort": order, "title": None, "header": {"labelFontSize": 12}},
        "columns": 2,
        "spec": {
            "width": 330,
            "height": 200,
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
            "encoding": {
                "x": {"field": "trials", "type": "quantitative", "title": "trials, baselines included"},
                "y": {
                    "field": "share",
                    "type": "quantitative",
                    "title": "sweeps within 2 % of the best",
                    "axis": {"format": "%"},
                },
                "color": {
                    "field": "search",
                    "type": "nominal",
                    "sort": list(dict.fromkeys(row["search"] for row in rows)),
                    "scale": {"scheme": "tableau10"},
                    "title": None,
                },
                "strokeDash": {
                    "condition": {"test": "indexof(datum.search, 'ours') == 0", "value": [1, 0]},
                    "value": [4, 2],
                },
            },
        },
    }
    path.write_text(vl_convert.vegalite_to_svg(chart), encoding="utf-8")


def _shares(found: Sequence[Sweep]) -> list[float]:
    """Share of sweeps that were there after each number of trials."""
    reached = np.asarray([_or_never(one.reached(WITHIN[0])) for one in found])
    return [float((reached <= n).mean()) for n in range(1, CAP + 1)]
