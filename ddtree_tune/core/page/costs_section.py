"""What the sweep and its tokens cost: node time by use, money where the spec has a price, energy where measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.cell_table import cell_name
from ddtree_tune.core.gpu import NOT_METERED
from ddtree_tune.core.objective import failure_class
from ddtree_tune.core.page.charts import chart, hover, layer, named, number, palette, written
from ddtree_tune.core.page.model import Absent, Chart, Section, Table, Text
from ddtree_tune.core.page.trials_section import COLOURS
from ddtree_tune.core.page.words import digits, hours_text, short_id
from ddtree_tune.core.price import setting_costs
from ddtree_tune.core.speedup import BASELINES
from ddtree_tune.core.tables import ABSENT, money

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.page.charts import Row
    from ddtree_tune.core.page.model import Block
    from ddtree_tune.core.price import PriceSpec
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec

_HOW_TIME = "Node time is the money: every second between a trial's launch and its stop, by what it went into."
_HOW_ENERGY = "Energy of all GPUs of a node per output token, over the measured windows and not the time between them."
_HOW_COST = (
    "The price of a node over what it gives: per_node_hour / (3600 x tok/s) x 10^6. Prompts are in it, for the whole "
    "of the node's time is; idle time between requests is not."
)
_USES = {"launch": "loading", "gate": "gate", "load": "load", "coding": "coding", "stop": "stop"}
_BROKEN = "failed"
_KINDS = {**COLOURS, _BROKEN: "#b91c1c"}


def time_section(records: Sequence[TrialRecord], price: PriceSpec | None) -> Section:
    """Node time by stage and by what kind of trial it went into."""
    title = "Node time by use"
    spent: dict[tuple[str, str], float] = {}
    for record in records:
        kind = _BROKEN if failure_class(record) is not None else record.proposal.origin.value
        for span in record.spans:
            key = (_USES.get(span.stage, span.stage), kind)
            spent[key] = spent.get(key, 0.0) + span.seconds
    total = sum(spent.values())
    if not total:
        return Section("time", title, _HOW_TIME, (Absent("No trial has ended yet."),))
    unit, scale = ("hours", 3600.0) if total >= 2 * 3600 else ("minutes", 60.0)
    rows: list[Row] = [
        {"use": use, "kind": kind, "time": seconds / scale, "told": hours_text(seconds)}
        for (use, kind), seconds in spent.items()
    ]
    uses = [
        use
        for use in dict.fromkeys((*_USES.values(), *(row["use"] for row in rows)))
        if use in {row["use"] for row in rows}
    ]
    bars = chart(
        rows,
        layer(
            "bar",
            x={"field": "time", "type": "quantitative", "title": f"node {unit}", "stack": "zero"},
            y=named("use", None, sort=uses),
            color=named("kind", "trials", scale=palette(_KINDS, [row["kind"] for row in rows])),
            tooltip=hover(use="use", kind="trials", told="time"),
        ),
        height=30 * len(uses),
    )
    by_use = {use: sum(seconds for (of, _), seconds in spent.items() if of == use) for use in uses}
    table = Table(
        ("use", ">node time", ">share"),
        tuple((use, hours_text(seconds), f"{seconds / total:.0%}") for use, seconds in by_use.items()),
    )
    money_spent = f", {money(price.of(total))} {price.currency}" if price else ""
    said = Text(f"{hours_text(total)} of node time in {len(records)} trials{money_spent}.")
    return Section("time", title, _HOW_TIME, (said, Chart("Node time", bars), table))


def cost_section(conclusion: Conclusion, spec: SweepSpec) -> Section:
    """What a million output tokens cost under each setting, cell by cell."""
    title = "Cost of tokens"
    if spec.price is None:
        return Section("cost", title, _HOW_COST, (Absent("The spec names no price of a node (price.per_node_hour)."),))
    costs = setting_costs(conclusion, spec.price, spec.weights())
    if not any(one.cells for one in costs):
        return Section("cost", title, _HOW_COST, (Absent("No setting has a scored cell yet."),))
    unit = f"{spec.price.currency} per million output tokens"
    names = {cell.cell_id: f"i{cell.context} {cell.cell_id.rpartition('_')[2]}" for cell in spec.load.cells()}
    best = conclusion.best.config if conclusion.best else None
    rows: list[Row] = [
        {
            "setting": one.config.label,
            "cell": names[cell],
            "cost": cost,
            "told": money(cost),
            "kind": "baseline" if one.config in BASELINES else "what to run" if one.config == best else "searched",
        }
        for one in costs
        for cell, cost in one.cells
    ]
    kinds = {"baseline": COLOURS["baseline"], "searched": COLOURS["search"], "what to run": COLOURS["final"]}
    drawn = chart(
        rows,
        layer(
            {"type": "point", "filled": True, "size": 55, "opacity": 0.75},
            x=number("cost", unit),
            y=named("cell", None, sort=list(names.values())),
            color=named("kind", None, scale=palette(kinds, [row["kind"] for row in rows])),
            tooltip=hover(setting="setting", cell="cell", told=unit),
        ),
        height=26 * len(names),
    )
    table = Table(
        ("setting", ">mean", *(f">{name}" for name in names.values())),
        tuple(
            (
                one.config.label,
                ABSENT if one.mean is None else money(one.mean),
                *(money(known[cell]) if cell in (known := dict(one.cells)) else ABSENT for cell in names),
            )
            for one in costs
        ),
        f"{unit}, at {spec.price.per_node_hour:g} a node-hour; mean: spread over the compared cells as they count",
    )
    return Section("cost", title, _HOW_COST, (Chart(f"{unit[0].upper()}{unit[1:]}", drawn), table))


def energy_section(records: Sequence[TrialRecord]) -> Section:
    """Joules per token in every metered cell."""
    title = "GPU energy"
    cells = [(record, cell.metrics) for record in records for cell in record.cells]
    metered = [(record, cell) for record, cell in cells if cell.joules_per_token is not None]
    if not metered:
        return Section("energy", title, _HOW_ENERGY, (Absent(_why([cell for _, cell in cells])),))
    rows: list[Row] = [
        {
            "setting": record.config.label,
            "trial": short_id(record),
            "cell": cell_name(cell),
            "joules": cell.joules_per_token,
            "watts": cell.power_w,
            "kind": "baseline" if record.config in BASELINES else "searched",
        }
        for record, cell in metered
    ]
    kinds = {"baseline": COLOURS["baseline"], "searched": COLOURS["search"]}
    names = list(dict.fromkeys(row["cell"] for row in rows))
    drawn = chart(
        written(rows, joules=3, watts=0),
        layer(
            {"type": "point", "filled": True, "size": 55, "opacity": 0.75},
            x=number("joules", "joules per output token"),
            y=named("cell", None, sort=names),
            color=named("kind", None, scale=palette(kinds, [row["kind"] for row in rows])),
            tooltip=hover(setting="setting", trial="trial", cell="cell", joules_text="J per token", watts_text="W"),
        ),
        height=26 * len(names),
    )
    blocks: list[Block] = [Text(_total([cell for _, cell in metered])), Chart("Energy per output token", drawn)]
    rows_of_table = tuple(
        (
            short_id(record),
            record.config.label,
            cell_name(cell),
            digits(cell.joules_per_token, 3),
            digits(cell.power_w, 0),
            digits(cell.gpu_memory_gib, 1),
            digits(cell.sm_clock_mhz, 0),
            digits(cell.temperature_c, 0),
        )
        for record, cell in metered
    )
    head = ("trial", "setting", "cell", ">J per token", ">W", ">GiB", ">SM MHz", ">max °C")
    return Section("energy", title, _HOW_ENERGY, (*blocks, Table(head, rows_of_table)))


def _total(cells: Sequence[CellMetrics]) -> str:
    """Energy of the windows: mean power times their length."""
    joules = sum(cell.power_w * cell.window_s for cell in cells if cell.power_w is not None)
    return f"{joules / 3.6e6:.3f} kWh in the measured windows of {len(cells)} cells."


def _why(cells: Sequence[CellMetrics]) -> str:
    """Why there is no energy, in the cells' own words."""
    reasons = dict.fromkeys(why for cell in cells for field, why in cell.reasons if field == "joules_per_token")
    return f"Not measured: {'; '.join(reasons) or (NOT_METERED if cells else 'no cell has been measured yet')}."
