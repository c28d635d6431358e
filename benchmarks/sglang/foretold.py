"""What the search foretells of every tree from the two baselines alone, against what was measured.

``core/foresight.py`` gives five accounts of how much of a step's growth falls to each token that is
verified; a sweep weighs them by what it measures. Here they stand side by side.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from benchmarks.sglang.report_speed import cells
from benchmarks.sglang.rows import Speed
from benchmarks.sglang.settings import CHAIN, NONE, TREES
from benchmarks.sglang.table import table
from ddtree_tune.core.engine import EffectiveConfig
from ddtree_tune.core.foresight import SHARES, foresee
from ddtree_tune.core.metrics import CellMetrics, Summary
from ddtree_tune.core.record import CellResult, Origin, Proposal, TrialRecord, TrialStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.sglang.rows import Kept
    from benchmarks.sglang.settings import Setting

_BLOCK = 16
"""Of the drafter."""


def foretold(kept: Kept) -> Iterator[str]:
    """The table of each pair of which both baselines and some trees were measured."""
    for pair, some in kept.by_pair().items():
        baselines = [_record(number, setting, some) for number, setting in enumerate((NONE, CHAIN), 1)]
        if not all(one.cells for one in baselines):
            continue
        tell = foresee(baselines, {cell.metrics.cell_id: 1.0 for cell in baselines[0].cells})
        if tell is None:
            continue
        rows = []
        for setting in TREES:
            measured = _measured(setting, some)
            logs = tell(setting.config)
            if measured is not None and logs is not None:
                rows.append((measured, setting.name, [math.exp(log) for log in logs]))
        yield f"\n## {pair}: speed over no speculation, mean over the numbers of users\n"
        yield from table(
            ("setting", "measured", *(f"{share:.0%} of a step's growth by token" for share in SHARES)),
            (
                (name, f"{measured:.2f}", *(f"{one:.2f}" for one in said))
                for measured, name, said in sorted(rows, reverse=True)
            ),
        )
        off = [fmean(abs(math.log(said[at] / measured)) for measured, _, said in rows) for at in range(len(SHARES))]
        yield f"\nMean distance from what was measured: {', '.join(f'{math.expm1(one):.0%}' for one in off)}."


def _measured(setting: Setting, kept: Kept) -> float | None:
    """Geometric mean over the numbers of users; None unless all were measured."""
    found = {
        cell.users: median(ratios)
        for cell in cells(kept)
        if cell.setting == setting.name and (ratios := cell.ratios("of_none"))
    }
    if found.keys() != {cell.users for cell in cells(kept)}:
        return None
    return math.exp(fmean(math.log(ratio) for ratio in found.values()))


def _record(number: int, setting: Setting, kept: Kept) -> TrialRecord:
    """A trial of a setting, each of its cells the median of the repeats."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for one in kept.of(Speed):
        if one.setting == setting.name and one.metrics["output_tps"]:
            groups.setdefault(one.concurrency, []).append(one.metrics)
    config = setting.config
    return TrialRecord(
        sweep="foretold",
        proposal=Proposal(f"{number:04d}", config, Origin.BASELINE, coding=False),
        status=TrialStatus.COMPLETE,
        started_utc="",
        node="",
        spans=(),
        effective=EffectiveConfig(config.algorithm, config.budget, config.topk, config.window, _BLOCK, 1, "", ""),
        cells=tuple(CellResult(_middle(some), ()) for _, some in sorted(groups.items())),
    )


def _middle(repeats: Sequence[dict[str, Any]]) -> CellMetrics:
    known = {field.name: repeats[0].get(field.name) for field in fields(CellMetrics)}
    summaries = {
        name: replace(Summary(**value), mean=median(one[name]["mean"] for one in repeats))
        for name, value in known.items()
        if isinstance(value, dict) and "p50" in value
    }
    numbers = {
        name: median(values)
        for name in ("output_tps", "accept_len", "in_flight_mean")
        if (values := [one[name] for one in repeats if one[name] is not None])
    }
    return CellMetrics(**(known | summaries | numbers | {"flags": (), "reasons": {}}))
