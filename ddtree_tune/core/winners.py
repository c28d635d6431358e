"""The best configuration for each cell of the matrix: what an adaptive server would be told.

The best setting over the whole matrix is rarely the best everywhere, and where many users are
served no speculation at all may win.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ddtree_tune.core.space import size_key
from ddtree_tune.core.speedup import BASELINES, NO_SPECULATION, PLAIN_CHAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.measurements import Gain, Measurements
    from ddtree_tune.core.workload import Cell

TIE = 0.01
"""Share of speed within which two settings are as good as each other."""


class Certainty(StrEnum):
    """How well the winner of a cell is told apart from what else could run there."""

    SURE = "sure"
    TIE = "tie"
    """Not told apart from its rival."""
    ONCE = "once"
    """Measured once: how sure that is, is not known."""


@dataclass(frozen=True, slots=True)
class CellWinner:
    """The best configuration for one cell."""

    cell_id: str
    context: int
    concurrency: int | None
    config: EngineConfig | None
    """None if nothing could be compared here."""
    output_tps: float | None = None
    vs_none: Gain | None = None
    vs_chain: Gain | None = None
    certainty: Certainty | None = None
    rival: EngineConfig | None = None
    """In a tie: of a tree a baseline, of a baseline anything else."""


def cell_winner(cell: Cell, search: Measurements, finals: Measurements, unfit: frozenset[EngineConfig]) -> CellWinner:
    """The winner of one cell.

    A configuration that was measured once in the search displaces the best of the finals only from
    above that one's interval.

    Args:
        cell: of the matrix.
        search: what the search measured.
        finals: what was measured again; empty if nothing was.
        unfit: configurations that cannot be recommended.
    """
    repeated = _fastest(finals, finals.arms, cell.cell_id, unfit)
    others = [arm for arm in search.arms if arm not in finals.arms or repeated is None]
    once = _fastest(search, others, cell.cell_id, unfit)
    table, found = finals, repeated
    if once is not None and (repeated is None or once[1].ratio > _ceiling(repeated[1])):
        table, found = search, once
    if found is None:
        return CellWinner(cell.cell_id, cell.context, cell.concurrency, None)
    config, gain = found
    certainty, rival = _certainty(table, config, cell.cell_id, unfit)
    return CellWinner(
        cell.cell_id,
        cell.context,
        cell.concurrency,
        config,
        output_tps=table.output_tps(config, cell.cell_id),
        vs_none=gain,
        vs_chain=table.gain(config, PLAIN_CHAIN, cell.cell_id),
        certainty=certainty,
        rival=rival,
    )


def _fastest(
    table: Measurements, arms: Iterable[EngineConfig], cell: str, unfit: frozenset[EngineConfig]
) -> tuple[EngineConfig, Gain] | None:
    gains = {arm: table.gain(arm, NO_SPECULATION, cell) for arm in arms if arm not in unfit}
    known = {arm: gain for arm, gain in gains.items() if gain is not None}
    if not known:
        return None
    top = max(gain.ratio for gain in known.values())
    best = min((arm for arm, gain in known.items() if gain.ratio >= top * (1 - TIE)), key=size_key)
    return best, known[best]


def _ceiling(gain: Gain) -> float:
    return gain.interval.high if gain.interval else gain.ratio * (1 + TIE)


def _certainty(
    table: Measurements, winner: EngineConfig, cell: str, unfit: frozenset[EngineConfig]
) -> tuple[Certainty, EngineConfig | None]:
    """How sure the winner is, and of a tie with what."""
    searched = winner not in BASELINES
    others = [arm for arm in table.arms if arm != winner and arm not in unfit]
    others = [arm for arm in others if not (searched and arm not in BASELINES)]
    gains = {arm: gain for arm in others if (gain := table.gain(winner, arm, cell)) is not None}
    if not gains or any(gain.sure is None for gain in gains.values()):
        return Certainty.ONCE, None
    close = {arm: gain.ratio for arm, gain in gains.items() if not gain.sure}
    return (Certainty.TIE, min(close, key=lambda arm: close[arm])) if close else (Certainty.SURE, None)


def certainty_text(cell: CellWinner) -> str:
    """How sure the winner of a cell is, for people."""
    if cell.certainty is None:
        return "not scored"
    if cell.certainty is Certainty.TIE and cell.rival is not None:
        return f"tie with {cell.rival.label}"
    return "measured once" if cell.certainty is Certainty.ONCE else cell.certainty.value
