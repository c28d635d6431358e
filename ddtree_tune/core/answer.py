"""The answer and the plan of a sweep as JSON for programs: what is printed for people, as data."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.headline import headline
from ddtree_tune.core.launch import DEFAULTS, command_words, winning_plan
from ddtree_tune.core.objective import failure_class
from ddtree_tune.core.price import setting_costs
from ddtree_tune.core.stats import Z95
from ddtree_tune.core.winners import schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.beliefs import Hope
    from ddtree_tune.core.conclusion import Conclusion, Row, Setting
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.front import Compromise
    from ddtree_tune.core.measurements import Gain
    from ddtree_tune.core.plan import Plan
    from ddtree_tune.core.price import PriceSpec
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.winners import Winner


def answer_fields(
    conclusion: Conclusion, records: Sequence[TrialRecord], spec: SweepSpec, *, root: str, partial: str | None
) -> dict[str, Any]:
    """Everything that the answer says; what is not known is null.

    Args:
        conclusion: what was found.
        records: every trial.
        spec: the sweep.
        root: where the results are.
        partial: why there may be more to come.
    """
    seconds = sum(record.seconds for record in records)
    price = spec.price
    steps = schedule(conclusion.bands) if conclusion.best else ()  # where nothing is recommended nothing is scheduled
    return {
        "sweep": spec.name,
        "answer": conclusion.answer.value,
        "headline": headline(conclusion),
        "partial": partial,
        "best": _config(conclusion.best.config if conclusion.best else None),
        "best_tree": _config(conclusion.best_tree.config if conclusion.best_tree else None),
        "settings": [_setting(one) for one in conclusion.settings],
        "cells": [_winner(one, price) | {"cell_id": one.cells[0], "context": one.context} for one in conclusion.cells],
        "bands": [_winner(one, price) for one in conclusion.bands],
        "scheduled": None
        if conclusion.scheduled is None
        else {
            "x_no_speculation": _gain(conclusion.scheduled.vs_none),
            "x_best": _gain(conclusion.scheduled.vs_best),
        },
        "front": [_compromise(one) for one in conclusion.front],
        "schedule": [{"least": step.least, **(_config(step.config) or {})} for step in steps],
        "trials": [_trial(row) for row in conclusion.rows],
        "node_hours": seconds / 3600,
        "cost": None
        if price is None
        else {
            "currency": price.currency,
            "sweep": price.of(seconds),
            "per_million_output_tokens": [
                {"setting": one.config.label, "mean": one.mean, "cells": dict(one.cells)}
                for one in setting_costs(conclusion, price, spec.weights())
            ],
        },
        "launch": _launch(conclusion, records),
        "results": root,
    }


def hope_fields(hope: Hope) -> dict[str, Any]:
    """What the search would try next; the interval holds 95 %."""
    log, deviation = hope.ratio
    ends = {name: math.exp(log + side * Z95 * deviation) for name, side in (("low", -1), ("high", 1))}
    expected = {"ratio": math.exp(log), "interval": ends}
    return {**(_config(hope.config) or {}), "best": hope.best.label, "x_best": expected, "chance": hope.chance}


def plan_fields(spec: SweepSpec, plan: Plan) -> dict[str, Any]:
    """What a sweep would run; times are estimates."""
    cost = spec.price and {"currency": spec.price.currency, "sweep": spec.price.of(plan.node_s)}
    return {"sweep": spec.name, **asdict(plan), "node_s": plan.node_s, "cost": cost}


def _config(config: EngineConfig | None) -> dict[str, Any] | None:
    if config is None:
        return None
    return {"setting": config.label, **asdict(config), "flags": dict(config.flags)}


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    return None if gain is None else asdict(gain)


def _setting(one: Setting) -> dict[str, Any]:
    rate = one.coding.rate if one.coding else None
    return {
        **(_config(one.config) or {}),
        "x_no_speculation": _gain(one.vs_none),
        "x_plain_chain": _gain(one.vs_chain),
        "x_unrestricted_chain": _gain(one.vs_unrestricted),
        "accept_len": one.accept_len,
        "output_tps": dict(one.output_tps),
        "passed": rate.passed if rate else None,
        "attempted": rate.attempted if rate else None,
        "feasible": one.feasible,
        "broken": [asdict(limit) for limit in one.broken],
    }


def _winner(one: Winner, price: PriceSpec | None) -> dict[str, Any]:
    return {
        "concurrency": one.concurrency,
        "setting": one.config.label if one.config else None,
        "output_tps": one.output_tps,
        "per_million": price.per_million(one.output_tps) if price and one.output_tps else None,
        "x_no_speculation": _gain(one.vs_none),
        "x_plain_chain": _gain(one.vs_chain),
        "certainty": one.certainty,
        "rival": one.rival.label if one.rival else None,
    }


def _compromise(one: Compromise) -> dict[str, Any]:
    return {
        **(_config(one.config) or {}),
        "x_no_speculation": _gain(one.speedup),
        **{f"{goal.value}_x_no_speculation": _gain(gain) for goal, gain in one.latencies},
        "passed": one.solved.passed if one.solved else None,
        "attempted": one.solved.attempted if one.solved else None,
        "certainty": one.certainty,
        "rival": one.rival.label if one.rival else None,
    }


def _trial(row: Row) -> dict[str, Any]:
    record = row.record
    return {
        "trial": record.trial_id,
        **(_config(record.config) or {}),
        "origin": record.proposal.origin.value,
        "status": record.status.value,
        "failure": failure_class(record),
        "x_no_speculation": row.vs_none,
        "x_plain_chain": row.vs_chain,
        "accept_len": row.accept_len,
        "passed": record.pass_rate.passed if record.pass_rate else None,
        "attempted": record.pass_rate.attempted if record.pass_rate else None,
        "seconds": record.seconds,
        "why": row.why,
    }


def _launch(conclusion: Conclusion, records: Sequence[TrialRecord]) -> dict[str, Any] | None:
    """The winner's command, the trial's own address and name replaced by what winner.sh takes."""
    plan = winning_plan(conclusion, records)
    return None if plan is None else {"argv": command_words(plan, DEFAULTS, str), "env": dict(plan.env)}
