"""What a sweep prints: the plan before it, the answer after it, and the command that runs the answer.

Plain text of at most 100 columns. A number that is absent is a dash, and never a guess.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from ddtree_tune.core.answer_tables import (
    bands_table,
    cells_table,
    costs_table,
    finals_table,
    front_table,
    limits_table,
    trials_table,
)
from ddtree_tune.core.coding_lines import coding_section
from ddtree_tune.core.headline import headline, schedule_text
from ddtree_tune.core.launch import command_lines, winning_plan
from ddtree_tune.core.measurements import Basis
from ddtree_tune.core.stats import Z95
from ddtree_tune.core.tables import WIDTH, money

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.beliefs import Hope
    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.plan import Plan
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
    lines = ["", *textwrap.wrap(headline(conclusion), WIDTH), "", *trials_table(conclusion, spec)]
    if any(one.vs_none and one.vs_none.basis is Basis.FINALS for one in conclusion.settings):
        lines += ["", "Measured again, side by side (95 % intervals)", *finals_table(conclusion)]
    if conclusion.best is not None:
        lines += ["", "Best for each cell", *cells_table(conclusion, spec.price)]
        lines += ["", "Best for each number of requests in flight, over its cells", *bands_table(conclusion)]
        lines += [f"  {line}" for line in textwrap.wrap(schedule_text(conclusion), WIDTH - 2)]
    if spec.objective.others and conclusion.best is not None:
        lines += ["", *front_table(conclusion, spec)]
    if any(one.broken for one in conclusion.settings):
        lines += ["", "Latency limits that are not kept (95th percentiles)", *limits_table(conclusion)]
    if conclusion.coding:
        lines += ["", *coding_section(conclusion.coding, spec.search.pass_rate_margin)]
    if spec.price is not None and conclusion.settings:
        lines += ["", *costs_table(conclusion, spec, spec.price)]
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
        f"Next the search would try {hope.config.label}. It expects {math.exp(log):.2f} ({low:.2f} to {high:.2f}) x "
        f"the speed of {hope.best.label}, the best searched so far by the search's own measurements: over 1 % more "
        f"with a chance of {hope.chance:.0%}. To go on, raise search.trials in {root}/sweep.yaml and run: ddtree-tune "
        f"resume {root}"
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


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
