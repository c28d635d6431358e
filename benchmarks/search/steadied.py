"""Takes the speed of a shared machine out of measured cells.

The cores that a surface is measured on belong to a host with other guests: their speed moves by a
tenth from one cell to the next, for prompts and for steps alike. How long prompts took in a cell
tells it: apart from what a setting's knobs do to it, log(ttft) is the machine's alone, and over the
surface it explains nearly all by which neighbours differ. So a cell's times are divided by it, as if
the machine had run at its usual speed; what is left is the noise of the engine and of the load.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.record import CellResult
from ddtree_tune.core.stats import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.metrics import CellMetrics, Summary
    from ddtree_tune.core.record import TrialRecord


def steadied(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials as a machine of even speed would have measured them.

    Args:
        trials: of many settings, all cells measured by the same machine.
    """
    slow = _slowness(trials)
    return [
        replace(
            trial,
            cells=tuple(
                CellResult(at_speed(cell.metrics, slow.get((at, cell.metrics.cell_id), 0.0)), ())
                for cell in trial.cells
            ),
        )
        for at, trial in enumerate(trials)
    ]


def _slowness(trials: Sequence[TrialRecord]) -> dict[tuple[int, str], float]:
    """By trial and cell, log of how much slower than usual the machine was: what is left of log(ttft)."""
    known: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for at, trial in enumerate(trials):
        for cell in (result.metrics for result in trial.cells):
            if cell.ttft_s.mean:
                known[cell.cell_id].append((at, math.log(cell.ttft_s.mean)))
    found = {}
    for cell_id, seen in known.items():
        logs = np.asarray([log for _, log in seen])
        effects = _effects([trials[at].config for at, _ in seen])
        left = logs - effects @ np.linalg.lstsq(effects, logs)[0]
        found.update({(at, cell_id): one for (at, _), one in zip(seen, left.tolist(), strict=True)})
    return found


def _effects(configs: Sequence[EngineConfig]) -> NDArray[np.float64]:
    """What a setting may do to log(ttft), (n, effects) float64: wait for a step of its width, read its window."""
    kinds = list(dict.fromkeys((one.algorithm, one.window) for one in configs))
    return np.asarray(
        [
            [one.budget or 0, math.log2(one.topk or 1), *(float((one.algorithm, one.window) == of) for of in kinds)]
            for one in configs
        ]
    )


def at_speed(cell: CellMetrics, faster: float) -> CellMetrics:
    """A cell as it would be on a machine whose times are shorter by a factor exp(faster).

    Args:
        cell: as measured.
        faster: logarithm.
    """
    factor = math.exp(faster)
    interval = cell.output_tps_ci95
    return replace(
        cell,
        output_tps=_times(cell.output_tps, factor),
        output_tps_ci95=interval and Interval(interval.low * factor, interval.high * factor),
        output_tps_repeats=tuple(one * factor for one in cell.output_tps_repeats),
        user_tps=_times(cell.user_tps, factor),
        **{name: _shorter(getattr(cell, name), factor) for name in ("ttft_s", "icl_s", "itl_s", "tpot_s", "e2e_s")},
    )


def _shorter(summary: Summary, factor: float) -> Summary:
    parts = {name: _times(getattr(summary, name), 1 / factor) for name in ("mean", "p50", "p95", "p99")}
    return replace(summary, **parts)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
