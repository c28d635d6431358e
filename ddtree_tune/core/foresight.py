"""What a search expects of settings before it measured them: acceptance over the growth of a step.

The acceptance is replayed from traces where there are any; else a drafter that knows how sure it is
is supposed, see `calibrated`. Which budget is best hangs on how much a step grows with the tokens
that it verifies. The baselines bound it: what a step of the chain takes longer than one without
drafts is the drafter's time and that of its tokens. So there is an account of the engine for some
shares of the two, and the measurements choose among them. No account is fitted to the scores that it
is weighed by: one that had followed their noise would explain them too well.

A trace tells of its own window and of as many candidates as it keeps. Beyond that a setting is
foretold as its nearest traced neighbour: what the difference makes is left to the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ddtree_tune.core.calibrated import Calibrated
from ddtree_tune.core.prior import Acceptances, base_cells
from ddtree_tune.core.steps import step_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.draft_trace import DraftTrace
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.prior import BaseCell
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.step_time import Estimate
    from ddtree_tune.core.steps import StepPoint

SHARES = (0.05, 0.15, 0.35, 0.65, 1.0)
"""Of what a step with drafts takes longer than one without: the share that the tokens take which it
verifies; the drafter takes the rest."""


class AcceptLens(Protocol):
    """Acceptance of any setting."""

    def width(self, config: EngineConfig) -> int | None:
        """Tokens of one sequence in a verify pass; None where nothing is known of the setting."""
        ...

    def __call__(self, config: EngineConfig, context: int) -> Estimate | None:
        """Acceptance length at a context; None where nothing is known of it."""
        ...


@dataclass(frozen=True, slots=True)
class Replayed:
    """Traces that were replayed over the settings that a search may ask about."""

    acceptances: AcceptLens
    topks: Mapping[int | None, int]
    """Candidates that the trace of each window keeps."""

    @classmethod
    def of(cls, traces: Sequence[DraftTrace], configs: Iterable[EngineConfig]) -> Replayed:
        """Replay.

        Args:
            traces: at least one, one per window.
            configs: of the search.
        """
        topks = {trace.header.window: trace.header.topk for trace in traces}
        return cls(Acceptances(traces, [nearest(config, topks) for config in configs]), topks)

    def width(self, config: EngineConfig) -> int | None:
        """Tokens of one sequence in a verify pass; None without drafts."""
        return self.acceptances.width(nearest(config, self.topks))

    def __call__(self, config: EngineConfig, context: int) -> Estimate | None:
        """Acceptance length at a context, that of the nearest traced neighbour."""
        return self.acceptances(nearest(config, self.topks), context)


@dataclass(frozen=True, slots=True)
class Foretelling:
    """Foretells the log score of any setting, once for each share of the tokens."""

    accept_lens: AcceptLens
    cells: Sequence[BaseCell]
    """Those that count, without speculation."""
    weights: NDArray[np.float64]
    """(cells,) float64, how much each counts."""
    fixed: NDArray[np.float64]
    """(cells, v) float64, what of a step does not grow, in units of a user's time per token without speculation."""
    per_token: NDArray[np.float64]
    """(cells, v) float64, what each token of a sequence adds, in the same units."""

    def __call__(self, config: EngineConfig) -> NDArray[np.float64] | None:
        """The weighted mean of the cells' log speed-ups, (v,) float64.

        A cell's is -log(prefill_share + (fixed + per_token * width) / accept_len), see `prior.cell_speedup`.

        Returns:
            None where the acceptance is not known in a cell that counts.
        """
        width = self.accept_lens.width(config)
        by_context = {context: self.accept_lens(config, context) for context in {cell.context for cell in self.cells}}
        logs = [one.log for cell in self.cells if (one := by_context[cell.context]) is not None]
        if width is None or len(logs) < len(self.cells):
            return None
        prefill = np.asarray([[cell.prefill_share] for cell in self.cells])
        decoding = (self.fixed + self.per_token * width) / np.exp(logs)[:, None]
        return np.asarray(-(self.weights @ np.log(prefill + decoding)) / self.weights.sum())


def foresee(
    records: Sequence[TrialRecord], weights: Mapping[str, float], replayed: Replayed | None = None
) -> Foretelling | None:
    """What can be foretold once some trials ended.

    The steps are those without drafts and those of the first setting with drafts, usually the chain;
    a step with drafts and one token is one without and the drafter's share of the difference.

    Args:
        records: of the sweep.
        weights: how much each cell counts.
        replayed: traces, if there are any.

    Returns:
        None as long as no baseline and no setting with drafts tells of every cell that counts.
    """
    records = sorted(records, key=lambda one: one.trial_id)  # a resumed sweep is told in another order
    accept_lens = replayed or Calibrated.of(records)
    cells = [cell for cell in base_cells(records) if weights.get(cell.cell_id, 0.0) > 0]
    plain: dict[str, StepPoint] = {}
    drafted: dict[str, StepPoint] = {}
    for one in step_points(records):
        (plain if one.width == 1 else drafted).setdefault(one.cell_id, one)
    names = [cell.cell_id for cell in cells]
    if accept_lens is None or not cells or not set(names) <= plain.keys() & drafted.keys():
        return None
    unit_s = np.asarray([cell.user_s for cell in cells])
    widths = np.asarray([drafted[name].width for name in names])
    steps, without = (np.asarray([of[name].step_s for name in names]) / unit_s for of in (drafted, plain))
    per_token = (np.maximum(steps - without, 0.0) / (widths - 1))[:, None] * np.asarray(SHARES)
    return Foretelling(
        accept_lens,
        cells,
        np.asarray([weights[name] for name in names], dtype=np.float64),
        steps[:, None] - widths[:, None] * per_token,
        per_token,
    )


def nearest(config: EngineConfig, topks: Mapping[int | None, int]) -> EngineConfig:
    """The setting itself, or the one in the nearest traced window with at most the candidates that it keeps."""
    widest = 2 * max((window for window in (config.window, *topks) if window is not None), default=1)

    def away(window: int | None) -> float:
        return abs(math.log2((window or widest) / (config.window or widest)))

    window = min(topks, key=away)
    topk = None if config.topk is None else min(config.topk, topks[window])
    return replace(config, window=window, topk=topk)
