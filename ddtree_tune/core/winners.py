"""The best configuration for each cell and for each number of users: what an adaptive server would be told.

The best setting over the whole matrix is rarely the best everywhere, and where many users are
served no speculation at all may win.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ddtree_tune.core.space import size_key
from ddtree_tune.core.speedup import BASELINES, NO_SPECULATION, PLAIN_CHAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.front import Compromise
    from ddtree_tune.core.measurements import Gain, Measurements
    from ddtree_tune.core.workload import Cell

TIE = 0.01
"""Share of speed within which two settings are as good as each other."""


class Certainty(StrEnum):
    """How well a winner is told apart from what else could run there."""

    SURE = "sure"
    TIE = "tie"
    """Not told apart from its rival."""
    ONCE = "once"
    """Measured once: how sure that is, is not known."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The best configuration for one cell, or for one number of requests in flight over all contexts."""

    cells: tuple[str, ...]
    """Ids of the cells that it was chosen over; none if no speculation has no scored measurement there."""
    context: int | None
    """None is all of them."""
    concurrency: int | None
    """None in an open loop."""
    config: EngineConfig | None = None
    """None if nothing could be compared here."""
    output_tps: float | None = None
    """Of one cell; None over several."""
    vs_none: Gain | None = None
    vs_chain: Gain | None = None
    certainty: Certainty | None = None
    rival: EngineConfig | None = None
    """In a tie: of a tree a baseline, of a baseline anything else."""


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the schedule by batch size."""

    least: int
    """Requests in flight from which on it holds, up to the next step."""
    measured: tuple[int, ...]
    """The numbers of requests in flight that it was measured at."""
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The schedule as a whole, every cell under the winner of its number of users, as it was measured again."""

    vs_none: Gain
    vs_best: Gain | None
    """Over the best single setting; None where nothing is recommended."""


def scheduled(
    bands: Iterable[Winner], cells: Iterable[Cell], finals: Measurements, best: EngineConfig | None
) -> Scheduled | None:
    """What the schedule gains over all cells that count.

    Args:
        bands: the winners.
        cells: of the matrix.
        finals: what was measured again.
        best: the best single setting.

    Returns:
        None where one setting is best for all, or some band's winner was not measured again.
    """
    winners = {band.concurrency: band.config for band in bands if band.config is not None}
    if len(set(winners.values())) < 2:
        return None
    choice = {cell.cell_id: winners[cell.concurrency] for cell in cells if cell.concurrency in winners}
    vs_none = finals.mixed(choice, NO_SPECULATION)
    return Scheduled(vs_none, finals.mixed(choice, best) if best else None) if vs_none else None


def cell_winner(cell: Cell, search: Measurements, finals: Measurements, unfit: frozenset[EngineConfig]) -> Winner:
    """The winner of one cell.

    Args:
        cell: of the matrix.
        search: what the search measured.
        finals: what was measured again; empty if nothing was.
        unfit: configurations that cannot be recommended.
    """
    return _picked(Winner((cell.cell_id,), cell.context, cell.concurrency), search, finals, unfit)


def band_winner(
    concurrency: int,
    cells: Iterable[Cell],
    search: Measurements,
    finals: Measurements,
    unfit: frozenset[EngineConfig],
) -> Winner:
    """The winner for one number of requests in flight, by the geometric mean over its cells.

    It is launched, so what was measured once does not displace what was measured again; baselines alone
    are nothing to hold on to, where no searched setting of the finals can be recommended.

    Args:
        concurrency: requests in flight.
        cells: its cells.
        search: what the search measured.
        finals: what was measured again; empty if nothing was.
        unfit: configurations that cannot be recommended there.
    """
    scored = tuple(cell.cell_id for cell in cells if search.output_tps(NO_SPECULATION, cell.cell_id) is not None)
    counted = tuple(cell for cell in scored if search.weights[cell] > 0)
    empty = Winner(counted or scored, None, concurrency)
    repeated = _fastest(finals, [arm for arm in finals.arms if arm not in BASELINES], empty.cells, unfit)
    return _picked(empty, search if repeated is None else finals, finals, unfit)


def schedule(bands: Iterable[Winner]) -> tuple[Step, ...]:
    """What to run for which number of requests in flight; neighbours that run the same are one step.

    Between two numbers that were measured the winner of the smaller one holds, below the smallest its own.
    """
    steps: list[Step] = []
    for band in bands:
        if band.config is None or band.concurrency is None:
            continue
        if steps and steps[-1].config == band.config:
            steps[-1] = replace(steps[-1], measured=(*steps[-1].measured, band.concurrency))
        else:
            steps.append(Step(band.concurrency if steps else 1, (band.concurrency,), band.config))
    return tuple(steps)


def _picked(empty: Winner, search: Measurements, finals: Measurements, unfit: frozenset[EngineConfig]) -> Winner:
    """The winner over some cells; ``empty`` if nothing could be compared there.

    A configuration that was measured once in the search displaces the best of the finals only from
    above its interval.
    """
    cells = empty.cells
    repeated = _fastest(finals, finals.arms, cells, unfit)
    again = {arm for arm in finals.arms if finals.gain(arm, NO_SPECULATION, cells) is not None}
    others = [arm for arm in search.arms if arm not in again or repeated is None]
    once = _fastest(search, others, cells, unfit)
    table, found = finals, repeated
    if once is not None and (repeated is None or once[1].ratio > _ceiling(finals, repeated[1].ratio, cells)):
        table, found = search, once
    if found is None:
        return empty
    config, gain = found
    certainty, rival = _certainty(table, config, cells, unfit)
    return replace(
        empty,
        config=config,
        output_tps=table.output_tps(config, cells[0]) if len(cells) == 1 else None,
        vs_none=gain,
        vs_chain=table.gain(config, PLAIN_CHAIN, cells),
        certainty=certainty,
        rival=rival,
    )


def _fastest(
    table: Measurements, arms: Iterable[EngineConfig], cells: Sequence[str], unfit: frozenset[EngineConfig]
) -> tuple[EngineConfig, Gain] | None:
    gains = {arm: table.gain(arm, NO_SPECULATION, cells) for arm in arms if arm not in unfit}
    known = {arm: gain for arm, gain in gains.items() if gain is not None}
    if not known:
        return None
    top = max(gain.ratio for gain in known.values())
    best = min((arm for arm, gain in known.items() if gain.ratio >= top * (1 - TIE)), key=size_key)
    return best, known[best]


def _ceiling(finals: Measurements, ratio: float, cells: Sequence[str]) -> float:
    """The upper end of a gain's interval, as wide as the widest: no speculation is sure to be as fast as itself."""
    gains = (finals.gain(arm, NO_SPECULATION, cells) for arm in finals.arms if arm != NO_SPECULATION)
    return ratio * max((gain.interval.high / gain.ratio for gain in gains if gain and gain.interval), default=1 + TIE)


def _certainty(
    table: Measurements, winner: EngineConfig, cells: Sequence[str], unfit: frozenset[EngineConfig]
) -> tuple[Certainty, EngineConfig | None]:
    """How sure the winner is, and of a tie with what: one that is surely faster, but by less than a tie, is one."""
    searched = winner not in BASELINES
    others = [arm for arm in table.arms if arm != winner and arm not in unfit]
    others = [arm for arm in others if not (searched and arm not in BASELINES)]
    gains = {arm: gain for arm in others if (gain := table.gain(winner, arm, cells)) is not None}
    if not gains or any(gain.sure is None for gain in gains.values()):
        return Certainty.ONCE, None
    close = {arm: gain.ratio for arm, gain in gains.items() if not gain.sure or gain.ratio < 1}
    return (Certainty.TIE, min(close, key=lambda arm: close[arm])) if close else (Certainty.SURE, None)


def certainty_text(winner: Winner | Compromise) -> str:
    """How sure a winner is, or a setting of the front, for people."""
    if winner.certainty is None:
        return "nothing scored that may run"
    if winner.certainty is Certainty.TIE and winner.rival is not None:
        return f"tie with {winner.rival.label}"
    return "measured once" if winner.certainty is Certainty.ONCE else winner.certainty.value
