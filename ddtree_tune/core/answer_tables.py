"""The tables of the answer as text: trials, finals, winners, limits, compromises and costs.

At most 100 columns wide. A number that is absent is a dash, and never a guess.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ddtree_tune.core.coding_lines import elsewhere
from ddtree_tune.core.headline import gain_text
from ddtree_tune.core.objective import failure_class
from ddtree_tune.core.price import setting_costs
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION, PLAIN_CHAIN
from ddtree_tune.core.tables import ABSENT, WIDTH, cut, money, text_table
from ddtree_tune.core.winners import certainty_text

if TYPE_CHECKING:
    from ddtree_tune.core.conclusion import Conclusion, Row
    from ddtree_tune.core.measurements import Gain
    from ddtree_tune.core.price import PriceSpec
    from ddtree_tune.core.spec import SweepSpec


def trials_table(conclusion: Conclusion, spec: SweepSpec) -> list[str]:
    """Every trial but the finals that went well."""
    lost = sum(weight > 0 for weight in spec.weights().values()) - len(conclusion.compared)
    cells = f"x is the geometric mean over {len(conclusion.compared)} cells" + (
        f"; no speculation lacks {lost} others" if lost else ""
    )
    shown = [
        row
        for row in conclusion.rows
        if row.record.proposal.origin is not Origin.FINAL or row.record.status is not TrialStatus.COMPLETE
    ]
    if not shown:
        return ["No trials."]
    head = ("trial", "setting", "origin", ">x none", ">x chain", ">accept", ">passed", "note")
    rows = [
        (
            row.record.trial_id.partition("-")[0],
            cut(row.record.config.label, 32),
            row.record.proposal.origin.value,
            _number(row.vs_none),
            _number(row.vs_chain),
            _number(row.accept_len),
            f"{rate.passed}/{rate.attempted}" if (rate := row.record.pass_rate) else ABSENT,
            _note(row),
        )
        for row in shown
    ]
    reasons = [line for row in shown if row.why for line in _reason(row)]
    return [cut(f"Trials: budget/topk/window, {cells}"), *text_table(head, rows), *([""] if reasons else []), *reasons]


def finals_table(conclusion: Conclusion) -> list[str]:
    """What was measured again, side by side."""
    head = ("setting", ">rounds", ">x none", ">x chain", "note")
    rows = [
        (
            cut(one.config.label, 32),
            str(one.vs_none.rounds if one.vs_none else 0),
            _own(one.vs_none, one.config == NO_SPECULATION),
            _own(one.vs_chain, one.config == PLAIN_CHAIN),
            "" if one.feasible else "breaks a latency limit" if one.broken else "violates a constraint, or broke",
        )
        for one in conclusion.settings
    ]
    return text_table(head, rows)


def cells_table(conclusion: Conclusion, price: PriceSpec | None) -> list[str]:
    """The winner of each cell."""
    cost = (f">{price.currency}/M",) if price else ()
    head = (">context", ">concurrency", "setting", ">tok/s", *cost, ">x none", ">x chain", "how sure")
    rows = [
        (
            str(cell.context),
            str(cell.concurrency) if cell.concurrency is not None else ABSENT,
            cut(cell.config.label, 32) if cell.config else ABSENT,
            f"{cell.output_tps:.0f}" if cell.output_tps is not None else ABSENT,
            *((money(price.per_million(cell.output_tps)) if cell.output_tps else ABSENT,) if price else ()),
            _number(cell.vs_none.ratio if cell.vs_none else None),
            _number(cell.vs_chain.ratio if cell.vs_chain else None),
            certainty_text(cell),
        )
        for cell in conclusion.cells
    ]
    return text_table(head, rows)


def bands_table(conclusion: Conclusion) -> list[str]:
    """The winner of each number of requests in flight."""
    head = (">concurrency", "setting", ">x none", ">x chain", "how sure")
    rows = [
        (
            str(band.concurrency),
            cut(band.config.label, 32) if band.config else ABSENT,
            _own(band.vs_none, band.config == NO_SPECULATION),
            _own(band.vs_chain, band.config == PLAIN_CHAIN),
            certainty_text(band),
        )
        for band in conclusion.bands
    ]
    return text_table(head, rows)


def limits_table(conclusion: Conclusion) -> list[str]:
    """Which limit each setting breaks, and in which cell."""
    head = ("setting", "cell", "limit", ">s", ">at most s")
    rows = [
        (
            cut(one.config.label, 32),
            limit.cell_id,
            f"{limit.summary[:-2]}_p95_s",
            f"{limit.seconds:.3g}",
            f"{limit.limit_s:g}",
        )
        for one in conclusion.settings
        for limit in one.broken
    ]
    return text_table(head, rows)


def front_table(conclusion: Conclusion, spec: SweepSpec) -> list[str]:
    """What there is to choose from with several goals."""
    front, goals = conclusion.front, ", ".join(spec.objective.goals)
    lacking = sum(one.feasible for one in conclusion.settings) - len(front)
    if not front:
        return [f"Compromises: none is known, for no setting has a measurement of all of {goals}"]
    latencies = [f">{goal.value} x none" for goal, _ in front[0].latencies]
    head = ("setting", ">x none", *latencies, *((">passed",) if front[0].solved else ()), "how sure")
    kept = [one for one in front if one.certainty]
    rows = [
        (
            cut(one.config.label, 32),
            gain_text(one.speedup),
            *(gain_text(gain) for _, gain in one.latencies),
            *((f"{one.solved.passed}/{one.solved.attempted}",) if one.solved else ()),
            certainty_text(one),
        )
        for one in kept
    ]
    beaten = f"; {len(front) - len(kept)} others are beaten as measured" if len(front) > len(kept) else ""
    unknown = f"; {lacking} others lack a measurement of one" if lacking else ""
    said = f"Compromises: nothing else beats them at all of {goals}{beaten}{unknown}"
    return [*textwrap.wrap(said, WIDTH), *text_table(head, rows)]


def costs_table(conclusion: Conclusion, spec: SweepSpec, price: PriceSpec) -> list[str]:
    """What a million output tokens cost under each setting, and in which cell least and most."""
    head = ("setting", ">mean", ">least", "in cell", ">most", "in cell")
    rows = []
    for one in setting_costs(conclusion, price, spec.weights()):
        ordered = sorted(one.cells, key=lambda cell: cell[1])
        ends = [(money(cost), cell) for cell, cost in (ordered[0], ordered[-1])] if ordered else [(ABSENT, ABSENT)] * 2
        mean = money(one.mean) if one.mean is not None else ABSENT
        rows.append((cut(one.config.label, 32), mean, *ends[0], *ends[1]))
    said = f"{price.currency} per million output tokens, at {price.per_node_hour:g} a node-hour"
    return [f"{said}; mean: spread over the {len(conclusion.compared)} cells as they count", *text_table(head, rows)]


def _note(row: Row) -> str:
    record = row.record
    notes = [] if record.measured else [f"{record.status}: {failure_class(record)}"]
    if record.status is TrialStatus.STOPPED:
        notes.append("stopped: behind")
    if row.why is not None and record.status is TrialStatus.COMPLETE:
        notes.append("no score")
    if record.gate is not None and record.gate.lossless is False:
        notes.append("text differs")
    if record.differences:
        notes.append("not as asked")
    if record.graphs and record.graphs.eager:
        notes.append(f"eager {record.graphs.eager / (record.graphs.eager + record.graphs.graphed):.0%}")
    if other := elsewhere(record.attempts):
        notes.append(other)
    return ", ".join(notes)


def _reason(row: Row) -> list[str]:
    """Why a trial has no score; its row in the results has all of it."""
    text = f"{row.record.trial_id.partition('-')[0]} {row.record.config.label}: {row.why}"
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", max_lines=4, placeholder=" …")


def _own(gain: Gain | None, itself: bool) -> str:
    return _number(1.0) if itself and gain is not None else gain_text(gain)


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"
