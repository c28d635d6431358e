"""Foretold speed over the (budget, topk) plane, with what was measured on it, as text and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.prior import Acceptances, Prior, base_cells
from ddtree_tune.core.speedup import rates
from ddtree_tune.core.step_time import StepTimeModel
from ddtree_tune.core.steps import step_points
from ddtree_tune.core.tables import ABSENT, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddtree_tune.core.draft_trace import DraftTrace
    from ddtree_tune.core.record import TrialRecord

_COLUMNS = 4
"""Topks that stand side by side on a page."""


class Foretold(NamedTuple):
    """One cell at one setting."""

    output_tps: float | None
    """Foretold; None where too little is known."""
    deviation: float | None
    """Of its logarithm."""
    measured_tps: float | None
    """Mean of the trials of that setting; None where there is none."""


class ForetoldReport:
    """What the trials of a sweep and one trace foretell for the trace's window."""

    def __init__(
        self, records: Sequence[TrialRecord], trace: DraftTrace, budgets: Sequence[int], topks: Sequence[int]
    ) -> None:
        """Fit and foretell.

        Args:
            records: trials; those without speculation are what all speed-ups refer to.
            trace: the drafts.
            budgets: of the plane.
            topks: of the plane, at most what the trace keeps.
        """
        self._budgets, self._topks = sorted(set(budgets)), sorted(set(topks))
        window = trace.header.window
        self._configs = {
            (budget, topk): EngineConfig(Algorithm.TREE, budget, topk, window)
            for budget in self._budgets
            for topk in self._topks
        }
        base = base_cells(records)
        prior = Prior(base, StepTimeModel.fit(step_points(records)), Acceptances([trace], self._configs.values()))
        measured = {
            config: [rates(one) for one in records if one.config == config] for config in self._configs.values()
        }
        self._planes: dict[str, dict[tuple[int, int], Foretold]] = {one.cell_id: {} for one in base}
        for at, config in self._configs.items():
            foretold = prior.cells(config)
            for one in base:
                known = foretold.get(one.cell_id)
                seen = [found[one.cell_id] for found in measured[config] if one.cell_id in found]
                self._planes[one.cell_id][at] = Foretold(
                    one.output_tps * math.exp(known.log) if known else None,
                    known.deviation if known else None,
                    sum(seen) / len(seen) if seen else None,
                )

    def lines(self) -> Iterator[str]:
        """A table per cell."""
        if not self._planes:
            yield "No trial without speculation has a cell that can be used: nothing is foretold."
        for cell_id, plane in self._planes.items():
            yield ""
            yield f"{cell_id}: foretold tok/s with its standard deviation, measured tok/s behind a colon"
            for first in range(0, len(self._topks), _COLUMNS):
                topks = self._topks[first : first + _COLUMNS]
                rows = [(str(budget), *(_text(plane[budget, topk]) for topk in topks)) for budget in self._budgets]
                yield from text_table((">budget", *(f">topk {topk}" for topk in topks)), rows)

    def fields(self) -> list[dict[str, Any]]:
        """The same for programs, a row per cell and setting."""
        return [
            {"cell_id": cell_id, "budget": budget, "topk": topk, **one._asdict()}
            for cell_id, plane in self._planes.items()
            for (budget, topk), one in plane.items()
        ]


def _text(one: Foretold) -> str:
    seen = "" if one.measured_tps is None else f": {one.measured_tps:.0f}"
    if one.output_tps is None or one.deviation is None:
        return f"{ABSENT}{seen}"
    return f"{one.output_tps:.0f} ±{100 * one.deviation:.0f}%{seen}"
