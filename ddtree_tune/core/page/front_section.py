"""Several goals: what every setting reaches of each, and which settings nothing else beats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.goals import LATENCIES
from ddtree_tune.core.headline import gain_text
from ddtree_tune.core.objective_spec import Goal
from ddtree_tune.core.page.charts import ACCENT, GREY, INK, chart, hover, layer, named, number, written
from ddtree_tune.core.page.model import Absent, Chart, Section, Table
from ddtree_tune.core.page.words import knobs
from ddtree_tune.core.tables import ABSENT
from ddtree_tune.core.winners import certainty_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.front import Compromise
    from ddtree_tune.core.measurements import Gain
    from ddtree_tune.core.page.charts import Row
    from ddtree_tune.core.spec import SweepSpec

_HOW = (
    "What there is to choose from: right and up is better, rings are settings that no other beats at every goal. Bars "
    "are 95 % intervals where settings were measured again. A tie is a setting that no goal tells apart from the one "
    "named for the better."
)
_SPARE = 18
"""Pixels around the points, for their names."""
_AXES = {
    Goal.TTFT: "time to first token (p95), x no speculation",
    Goal.TPOT: "time per output token (p95), x no speculation",
    Goal.SOLVED: "share of problems passed",
}


def front_sections(conclusion: Conclusion, spec: SweepSpec) -> Iterator[Section]:
    """One section, with a chart for each goal beside speed; none with one goal."""
    if not spec.objective.others:
        return
    title = "Compromises"
    if not conclusion.front:
        names = ", ".join(spec.objective.goals)
        yield Section(
            "front", title, _HOW, (Absent(f"No setting was compared with no speculation at all of {names}."),)
        )
        return
    charts = [Chart(f"Speed and {_AXES[goal]}", _chart(conclusion.front, goal)) for goal in spec.objective.others]
    yield Section("front", title, _HOW, (*charts, _table(conclusion.front)))


def _table(front: Sequence[Compromise]) -> Table:
    latencies = [f">{goal.value} x no speculation" for goal, _ in front[0].latencies]
    head = ("setting", ">x no speculation", *latencies, *((">passed",) if front[0].solved else ()), "how sure")
    rows = tuple(
        (
            one.config.label,
            gain_text(one.speedup),
            *(gain_text(gain) for _, gain in one.latencies),
            *((f"{one.solved.passed}/{one.solved.attempted}",) if one.solved else ()),
            certainty_text(one) if one.certainty else "beaten",
        )
        for one in front
    )
    return Table(head, rows)


def _chart(front: Sequence[Compromise], goal: Goal) -> dict[str, object]:
    """Speed to the right, the goal upwards."""
    rows = written([_row(one, goal) for one in front], speed=2, reached=2)
    across = {"padding": _SPARE}
    upwards = {"padding": _SPARE, "reverse": goal in LATENCIES}  # so that up is better for every goal
    x, y = number("speed", "x no speculation", **across), number("reached", _AXES[goal], **upwards)
    tooltip = hover(
        setting="setting",
        budget="budget",
        topk="topk",
        window="window",
        speed_text="x no speculation",
        reached_text=_AXES[goal],
        sure="how sure",
    )
    rings = [row for row in rows if row["on_front"]]
    bar = {"type": "rule", "color": GREY, "opacity": 0.7}
    return chart(
        rows,
        layer(bar, [row for row in rows if row["speed_high"]], x=number("speed_low", "x no speculation", **across),
              x2={"field": "speed_high"}, y=y),
        layer(bar, [row for row in rows if row["reached_high"]], y=number("reached_low", _AXES[goal], **upwards),
              y2={"field": "reached_high"}, x=x),
        layer({"type": "point", "filled": True, "size": 60, "color": ACCENT}, x=x, y=y, tooltip=tooltip),
        layer({"type": "point", "size": 170, "color": INK, "strokeWidth": 1.2}, rings, x=x, y=y, tooltip=tooltip),
        layer({"type": "text", "dy": 16, "fontSize": 10, "color": INK, "limit": 110}, rings, x=x, y=y,
              text=named("setting", None)),
    )  # fmt: skip


def _row(one: Compromise, goal: Goal) -> Row:
    gain = dict(one.latencies).get(goal)
    reached = gain.ratio if gain else one.solved.over_all if one.solved else None
    rate = one.solved.interval if one.solved else None
    low, high = _ends(gain) if gain else rate or (None, None)
    speed_low, speed_high = _ends(one.speedup)
    return {
        **knobs(one.config),
        "speed": one.speedup.ratio,
        "speed_low": speed_low,
        "speed_high": speed_high,
        "reached": reached,
        "reached_low": low,
        "reached_high": high,
        "on_front": one.certainty is not None,
        "sure": certainty_text(one) if one.certainty else ABSENT,
    }


def _ends(gain: Gain) -> tuple[float | None, float | None]:
    return (gain.interval.low, gain.interval.high) if gain.interval else (None, None)
