"""What a sweep found: the best setting, the best one for each cell, and how sure that is.

The speed-up of the best setting comes from the finals where there are finals, for the search's own
number is the luckiest of many. Settings within 1 % of the best are as good, and the smallest of
them is named. Nothing is filled in: what was not measured is absent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ddtree_tune.core.coding_result import CodingResult, coding_results
from ddtree_tune.core.coherence import judged
from ddtree_tune.core.fitness import breaking, slow, unfit
from ddtree_tune.core.front import Compromise, compromises
from ddtree_tune.core.measurements import Gain, Measurements
from ddtree_tune.core.objective import BEHIND, Broken, failure_class
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.rungs import standing
from ddtree_tune.core.space import size_key
from ddtree_tune.core.speedup import (
    BASELINES,
    NO_SPECULATION,
    PLAIN_CHAIN,
    UNRESTRICTED_CHAIN,
    pooled_rates,
    rates,
    speedup,
)
from ddtree_tune.core.winners import TIE, Scheduled, Winner, band_winner, cell_winner, scheduled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.workload import Cell


class Answer(StrEnum):
    """What the sweep says."""

    FASTER = "faster"
    """A setting is faster than every baseline that may be run, in repeated measurements."""
    INCONCLUSIVE = "inconclusive"
    """The best tree is not told apart from a baseline: it may be faster."""
    UNREPEATED = "unrepeated"
    """A setting looks best, and was not measured again."""
    CHAIN = "chain"
    """No tree is faster than a chain by more than a tie."""
    OFF = "no_speculation"
    """No speculation is as fast as anything."""
    NOTHING = "no_answer"
    """No setting could be compared with no speculation."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration over all its trials."""

    config: EngineConfig
    vs_none: Gain | None
    vs_chain: Gain | None
    vs_unrestricted: Gain | None
    """Over the chain without the trees' limits; None where that is no baseline."""
    output_tps: tuple[tuple[str, float], ...]
    """(cell, median throughput) of every cell that was scored, in the order of the matrix."""
    accept_len: float | None
    """Mean of the cells' acceptance lengths, tokens per step."""
    coding: CodingResult | None
    broken: tuple[Broken, ...]
    """The latency limits that it does not keep."""
    feasible: bool
    """Whether the engine ran it whenever asked and it holds the constraints and limits."""

    def over(self, baseline: EngineConfig) -> Gain | None:
        """How much faster than a baseline it is; None if the two were not compared."""
        gains = (self.vs_none, self.vs_chain, self.vs_unrestricted)
        return dict(zip(BASELINES, gains, strict=True))[baseline]


@dataclass(frozen=True, slots=True)
class Row:
    """One trial as the table shows it."""

    record: TrialRecord
    vs_none: float | None
    """A final is compared with its own round's baselines, another trial with the search's."""
    vs_chain: float | None
    accept_len: float | None
    why: str | None
    """Why there is no score, or why the trial did not complete."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a sweep found."""

    answer: Answer
    best: Setting | None
    """What to run, a baseline perhaps."""
    best_tree: Setting | None
    """The best searched setting."""
    settings: tuple[Setting, ...]
    """What the answer was drawn from, the fastest first: the finals' if there were any."""
    cells: tuple[Winner, ...]
    """One per cell of the matrix."""
    bands: tuple[Winner, ...]
    """One per number of requests in flight, the fewest first."""
    scheduled: Scheduled | None
    """What running each number of requests in flight under its own winner gains."""
    compared: tuple[str, ...]
    """The cells that the scores are taken over."""
    coding: tuple[CodingResult, ...]
    """One per setting that was evaluated, no speculation first."""
    front: tuple[Compromise, ...]
    """How the settings that may be run do at several goals, those on the front first; empty with one goal."""
    rows: tuple[Row, ...]
    """One per trial, in the order of asking."""
    why: str | None = None
    """Why there is no answer."""


def conclude(records: Sequence[TrialRecord], spec: SweepSpec) -> Conclusion:
    """Draw the conclusion of a sweep, complete or not.

    Args:
        records: every trial, in any order.
        spec: the sweep.
    """
    ordered = judged(sorted(records, key=lambda one: one.trial_id))
    weights = spec.weights()
    search, finals = Measurements.of_search(ordered, weights), Measurements.of_finals(ordered, weights)
    barred, late = unfit(ordered, spec), slow(ordered, spec)
    again = [record for record in ordered if record.proposal.origin is Origin.FINAL]
    whole = {record.config for record in again if not record.proposal.users}
    coding = coding_results(ordered)
    rows = tuple(_row(record, ordered, weights) for record in ordered)
    cells = spec.load.cells()
    winners = tuple(cell_winner(cell, search, finals, barred | breaking(late, [cell])) for cell in cells)
    bands = tuple(
        band_winner(users, mine, search, finals, barred | breaking(late, mine)) for users, mine in _by_users(cells)
    )
    barred |= {config for config, limits in late.items() if limits}
    table = finals if _trees(finals, barred) else search
    each = (
        _setting(config, ordered, table, coding, late[config], feasible=config not in barred)
        for config in table.arms
        if table is search or config in whole
    )
    settings = tuple(sorted(each, key=lambda one: (-(one.vs_none.ratio if one.vs_none else 0.0), size_key(one.config))))
    best = _best([one for one in settings if one.feasible])
    best_tree = _best([one for one in settings if one.feasible and one.config not in BASELINES])
    found = best if best_tree else None
    return Conclusion(
        answer=_answer(
            found, best_tree, [one for one in BASELINES if one not in barred and _known(one, search, finals)]
        ),
        best=found,
        best_tree=best_tree,
        settings=settings,
        cells=winners,
        bands=bands,
        compared=table.compared,
        scheduled=scheduled(bands, cells, finals, best.config if found and best else None),
        coding=coding,
        front=compromises(ordered, spec, table.basis, [one.config for one in settings if one.feasible], coding),
        rows=rows,
        why=None if found else _why_nothing(ordered, table, settings),
    )


def _answer(best: Setting | None, tree: Setting | None, baselines: Iterable[EngineConfig]) -> Answer:
    """What the best setting and the best tree say, beside the baselines that were measured and may be run."""
    if best is None or tree is None:
        return Answer.NOTHING
    if best.config in BASELINES:
        gain = tree.over(best.config)
        if gain is not None and gain.interval is not None and gain.interval.high > 1 + TIE:
            return Answer.INCONCLUSIVE
        return Answer.OFF if best.config == NO_SPECULATION else Answer.CHAIN
    gains = [best.vs_none, *map(best.over, baselines)]
    sure = [None if gain is None else gain.sure for gain in gains]
    if None in sure:
        return Answer.UNREPEATED
    return Answer.FASTER if all(sure[1:]) else Answer.INCONCLUSIVE


def _known(arm: EngineConfig, *tables: Measurements) -> bool:
    return any(table.gain(arm, NO_SPECULATION) is not None for table in tables)


def _best(settings: Iterable[Setting]) -> Setting | None:
    """The fastest, or the smallest of those that tie with it."""
    known = [(one.vs_none.ratio, one) for one in settings if one.vs_none is not None]
    top = max((ratio for ratio, _ in known), default=0.0)
    tied = [one for ratio, one in known if ratio >= top * (1 - TIE)]
    return min(tied, key=lambda one: size_key(one.config), default=None)


def _trees(table: Measurements, unfit: frozenset[EngineConfig]) -> list[EngineConfig]:
    """Searched settings that the table compares with no speculation."""
    trees = [arm for arm in table.arms if arm not in BASELINES and arm not in unfit]
    return [arm for arm in trees if table.gain(arm, NO_SPECULATION) is not None]


def _by_users(cells: Iterable[Cell]) -> list[tuple[int, list[Cell]]]:
    """The cells of each number of requests in flight, the fewest first."""
    found: dict[int, list[Cell]] = {}
    for cell in cells:
        if cell.concurrency is not None:
            found.setdefault(cell.concurrency, []).append(cell)
    return sorted(found.items())


def _setting(
    config: EngineConfig,
    records: Sequence[TrialRecord],
    table: Measurements,
    coding: Sequence[CodingResult],
    limits: tuple[Broken, ...],
    *,
    feasible: bool,
) -> Setting:
    mine = (record for record in records if record.config == config and not record.proposal.users)
    lengths = [length for record in mine if (length := _accept_len(record)) is not None]
    return Setting(
        config=config,
        vs_none=table.gain(config, NO_SPECULATION),
        vs_chain=table.gain(config, PLAIN_CHAIN),
        vs_unrestricted=table.gain(config, UNRESTRICTED_CHAIN),
        output_tps=tuple((cell, tps) for cell in table.cells if (tps := table.output_tps(config, cell)) is not None),
        accept_len=sum(lengths) / len(lengths) if lengths else None,
        coding=next((one for one in coding if one.config == config), None),
        broken=limits,
        feasible=feasible,
    )


def _row(record: TrialRecord, records: Sequence[TrialRecord], weights: Mapping[str, float]) -> Row:
    final = record.proposal.origin is Origin.FINAL
    beside = [
        one
        for one in records
        if (one.proposal.origin is Origin.FINAL) == final and (not final or one.proposal.round == record.proposal.round)
    ]
    vs_none = speedup(record, pooled_rates(beside, NO_SPECULATION), weights)
    vs_chain = speedup(record, pooled_rates(beside, PLAIN_CHAIN), weights)
    failure = failure_class(record)
    why = vs_none.reason if failure is None else f"{failure}: {record.failure.reason if record.failure else 'cut off'}"
    if record.proposal.part and failure is None:
        why = None
    return Row(record, vs_none.score, vs_chain.score, _accept_len(record), _standing(record) or why)


def _standing(record: TrialRecord) -> str | None:
    """How far behind a stopped trial was."""
    pace = record.proposal.pace
    mine = standing((cell.metrics for cell in record.cells), pace) if pace else None
    if record.status is not TrialStatus.STOPPED or pace is None or mine is None:
        return None
    return f"stopped: {BEHIND}: {math.exp(mine.log):.2f} x no speculation over them; the best had {pace.score:.2f}"


def _accept_len(record: TrialRecord) -> float | None:
    known = [cell.metrics.accept_len for cell in record.cells if cell.metrics.accept_len is not None]
    return sum(known) / len(known) if known and record.status is TrialStatus.COMPLETE else None


def _why_nothing(records: Sequence[TrialRecord], table: Measurements, settings: Sequence[Setting]) -> str:
    plain = [record for record in records if record.config == NO_SPECULATION]
    if not any(map(rates, plain)):
        return "no speculation, the base of every gain, has no scored measurement"
    if not table.compared:
        return "no cell of the matrix was scored"
    if any(one.broken for one in settings if one.vs_none is not None and one.config not in BASELINES):
        keep = " and ".join(one.config.label for one in settings if one.feasible and one.config in BASELINES)
        told = f"{keep} may be run" if keep else "nor does a baseline"
        return f"no searched setting that was compared keeps every latency limit (objective.slos); {told}"
    return "no setting completed every cell that no speculation completed"
