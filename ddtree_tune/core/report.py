"""What a sweep prints: the plan before it, the answer after it, and the command that runs the answer.

Plain text of at most 100 columns. A number that is absent is a dash, and never a guess.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from ddtree_tune.core.coding_lines import coding_section, elsewhere
from ddtree_tune.core.headline import gain_text, headline, schedule_text
from ddtree_tune.core.launch import command_lines, winning_plan
from ddtree_tune.core.measurements import Basis
from ddtree_tune.core.objective import failure_class
from ddtree_tune.core.price import setting_costs
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION, PLAIN_CHAIN
from ddtree_tune.core.stats import Z95
from ddtree_tune.core.tables import ABSENT, WIDTH, cut, money, text_table
from ddtree_tune.core.winners import certainty_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.beliefs import Hope
    from ddtree_tune.core.conclusion import Conclusion, Row
    from ddtree_tune.core.front import Compromise
    from ddtree_tune.core.measurements import Gain
    from ddtree_tune.core.plan import Plan
    from ddtree_tune.core.price import PriceSpec
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec


def answer_lines(
    conclusion: Conclusion, records: Sequence[TrialRecord], spec: SweepSpec, *, root: str = ""
) -> list[str]:
    """Everything that is printed at the end of a sweep.

    Args:
        conclusion: what was found.
        records: every trial.
        spec: the sweep.
        root: where the results are; not mentioned when empty.
    """
    lines = ["", *textwrap.wrap(headline(conclusion), WIDTH), "", *_trials(conclusion, spec)]
    if any(one.vs_none and one.vs_none.basis is Basis.FINALS for one in conclusion.settings):
        lines += ["", "Measured again, side by side (95 % intervals)", *_finals(conclusion)]
    if conclusion.best is not None:
        lines += ["", "Best for each cell", *_cells(conclusion, spec.price)]
        lines += ["", "Best for each number of requests in flight, over its cells", *_bands(conclusion)]
        lines += [f"  {line}" for line in textwrap.wrap(schedule_text(conclusion), WIDTH - 2)]
    if any(one.certainty for one in conclusion.front):
        lines += ["", *_front(conclusion.front, spec)]
    if any(one.broken for one in conclusion.settings):
        lines += ["", "Latency limits that are not kept (95th percentiles)", *_broken(conclusion)]
    if conclusion.coding:
        lines += ["", *coding_section(conclusion.coding, spec.search.pass_rate_margin)]
    if spec.price is not None and conclusion.settings:
        lines += ["", *_costs(conclusion, spec, spec.price)]
    seconds = sum(record.seconds for record in records)
    spent = f", {money(spec.price.of(seconds))} {spec.price.currency}" if spec.price else ""
    where = f" Results: {root}" if root else ""
    lines += ["", f"{seconds / 3600:.2f} node-hours in {len(records)} trials{spent}.{where}"]
    plan = winning_plan(conclusion, records)
    if plan is not None:
        lines += ["", "Launch it (winner.sh):" if root else "Launch it:", *(f"  {one}" for one in command_lines(plan))]
    return lines


def plan_lines(spec: SweepSpec, plan: Plan) -> list[str]:
    """What a sweep would run, before any node is touched."""
    proposals = max(0, plan.trials - plan.baselines - plan.seeds)
    first = f"{plan.baselines} baselines, {plan.seeds} seeds"
    final, load = spec.search.final, spec.load
    least = " at least" if final.bands and len(set(load.concurrency)) > 1 else ""
    again = f", then {final.rounds} rounds of the best {final.settings} and the baselines: {plan.finals} more{least}"
    lines = [
        f"{spec.name}: {spec.question or 'a sweep'}",
        f"{plan.trials} trials: {first}, {proposals} by {spec.search.sampler}{again if plan.finals else ''}",
        f"{plan.cells} cells each: contexts {_listed(load.contexts)}; concurrency {_listed(load.concurrency)}"
        + (f"; {load.repeats} repeats" if load.repeats > 1 else ""),
        f"coding: {spec.coding.problems}" if spec.coding else "coding: none",
        *([f"goals: {', '.join(spec.objective.goals)} (Pareto front)"] if spec.objective.others else []),
        f"about {_node_time(plan.node_s)}{_spent(spec, plan)}: {plan.trial_s:.0f} s a trial"
        + (f", {plan.final_s:.0f} s a final" if plan.finals else "")
        + ("" if plan.measured else "; a rough estimate, replaced by measured times as trials end"),
        *_saved(spec, plan),
    ]
    return [line for one in lines for line in textwrap.wrap(one, WIDTH, subsequent_indent="  ")]


def outlook(hope: Hope, root: str) -> str:
    """What the search would do next, and how to let it.

    Args:
        hope: of the next trial.
        root: where the results are.
    """
    log, deviation = hope.ratio
    low, high = (math.exp(log + end * Z95 * deviation) for end in (-1, 1))
    said = (
        f"Next the search would try {hope.config.label}. It expects {math.exp(log):.2f} ({low:.2f} to {high:.2f}) x the "
        f"speed of {hope.best.label}, the best so far by the search's own measurements: over 1 % more with a chance of "
        f"{hope.chance:.0%}. To go on, raise search.trials in {root}/sweep.yaml and run: ddtree-tune resume {root}"
    )
    return textwrap.fill(said, WIDTH, break_long_words=False, break_on_hyphens=False)


def _saved(spec: SweepSpec, plan: Plan) -> list[str]:
    """What stopping may save; nothing where trials run whole."""
    first = len(spec.load.first_cells())
    if not first:
        return []
    after = f"the first {first} cells" if first > 1 else "the first cell"
    most = f"at most {_node_time(plan.saved_s)}, if every proposal of the search were stopped"
    return [f"of which stopping behind after {after} saves {most}"]


def _spent(spec: SweepSpec, plan: Plan) -> str:
    return f" ({spec.price.of(plan.node_s):.0f} {spec.price.currency})" if spec.price else ""


def _node_time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} node-hours" if seconds >= 5400 else f"{seconds / 60:.0f} node-minutes"


def _trials(conclusion: Conclusion, spec: SweepSpec) -> list[str]:
    """Every trial but the finals that went well."""
    left_out = len(spec.load.cells()) - len(conclusion.compared)
    cells = f"x is the geometric mean over {len(conclusion.compared)} cells" + (
        f"; {left_out} that no speculation has no scored measurement of left out" if left_out else ""
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


def _finals(conclusion: Conclusion) -> list[str]:
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


def _front(front: Sequence[Compromise], spec: SweepSpec) -> list[str]:
    """What there is to choose from with several goals."""
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
    beaten = f"; {len(front) - len(kept)} others are beaten" if len(front) > len(kept) else ""
    said = f"Compromises: nothing else beats them at all of {', '.join(spec.objective.goals)}{beaten}"
    return [*textwrap.wrap(said, WIDTH), *text_table(head, rows)]


def _broken(conclusion: Conclusion) -> list[str]:
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


def _own(gain: Gain | None, itself: bool) -> str:
    return _number(1.0) if itself and gain is not None else gain_text(gain)


def _cells(conclusion: Conclusion, price: PriceSpec | None) -> list[str]:
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


def _costs(conclusion: Conclusion, spec: SweepSpec, price: PriceSpec) -> list[str]:
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


def _bands(conclusion: Conclusion) -> list[str]:
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


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
