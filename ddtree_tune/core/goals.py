"""What a setting can be good at: quantities of which more is better, each over no speculation's.

All goals are compared as logarithms of ratios, so that equal steps are equal shares of whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ddtree_tune.core.objective_spec import Goal
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.speedup import counted, pooled_rates, rates
from ddtree_tune.core.step_time import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.coding import PassRate
    from ddtree_tune.core.metrics import Summary
    from ddtree_tune.core.record import TrialRecord


LATENCIES = {Goal.TTFT: "ttft_s", Goal.TPOT: "tpot_s"}
"""The summary of a cell that a goal is the 95th percentile of."""
_SUM = 0.05
"""Weight of the sum of all shortfalls, as in the source of ``blended``."""
_HALF_TO_P95 = math.log(10)
"""Time constants of an exponential tail from its median to its 95th percentile, log(0.5 / 0.05)."""

Quantity: TypeAlias = Callable[["TrialRecord"], dict[str, float]]
"""A positive quantity of each scored cell of a trial, by cell; more is better."""


def quantity(goal: Goal) -> Quantity:
    """What a goal measures in each cell: tokens per second, or one over a 95th percentile in seconds.

    Raises:
        KeyError: the goal is not one of cells.
    """
    if goal is Goal.SPEEDUP:
        return rates
    summary = LATENCIES[goal]

    def quickness(record: TrialRecord) -> dict[str, float]:
        known = {cell: one.p95 for cell, one in _summaries(record, summary).items()}
        return {cell: 1 / p95 for cell, p95 in known.items() if p95}

    return quickness


def base_quantities(plain: Sequence[TrialRecord], goals: Sequence[Goal]) -> dict[Goal, dict[str, float]]:
    """What no speculation reaches, by goal of latency and cell; medians of its trials.

    Args:
        plain: trials without speculation.
        goals: of the sweep.
    """
    wanted = [goal for goal in goals if goal in LATENCIES]
    return {goal: pooled_rates(plain, plain[0].config, quantity(goal)) if plain else {} for goal in wanted}


def latency_gain(
    record: TrialRecord, goal: Goal, base: Mapping[str, float], weights: Mapping[str, float]
) -> Estimate | None:
    """By how much shorter a 95th percentile is than no speculation's, over the cells that count.

    A cell errs by sqrt(p * (1 - p) / n) / density, p being 0.95, n its requests and the density that of
    an exponential tail through its median and its 95th percentile; more than most latencies do.
    Source: the asymptotic variance of a sample quantile (Mosteller 1946).

    Args:
        record: the trial.
        goal: one of latency.
        base: one over no speculation's seconds, by cell.
        weights: how much each cell counts.

    Returns:
        None where too few requests tell the percentile in one of the cells, or none counts.
    """
    mine, shares = quantity(goal)(record), counted(base, weights)
    if not shares or set(shares) - set(mine):
        return None
    summaries = _summaries(record, LATENCIES[goal])
    logs = [math.log(mine[cell] / base[cell]) for cell in shares]
    noises = [_percentile_noise(summaries[cell]) for cell in shares]
    share = np.asarray(list(shares.values())) / sum(shares.values())
    return Estimate(float(share @ logs), float(np.linalg.norm(share * noises)))


def pass_gain(mine: PassRate | None, base: PassRate | None) -> Estimate | None:
    """By how much more problems are solved than without speculation.

    The logarithm of (passed + 1) / (attempted + 2) over the base's, which is known for none passed too.
    Source: the rule of succession (Laplace) and the delta method.

    Returns:
        None where either evaluation has no attempt.
    """
    if mine is None or base is None or not (mine.attempted and base.attempted):
        return None
    rate, of_base = ((one.passed + 1) / (one.attempted + 2) for one in (mine, base))
    return Estimate(math.log(rate / of_base), math.sqrt((1 - rate) / (rate * (mine.attempted + 2))))


def blended(
    values: NDArray[np.float64], shares: NDArray[np.float64], best: NDArray[np.float64], width: NDArray[np.float64]
) -> NDArray[np.float64]:
    """One score from several goals: how near a setting is to being best at all of them.

    What is short of the best at each goal, in units of its range: the shortfall that weighs most, and a
    little of the sum. Other shares lead to other settings that nothing else beats.
    Source: the augmented Tchebycheff function of ParEGO (Knowles, IEEE TEVC 10 (2006) 50-66, equation 2).

    Args:
        values: (..., d) float64, more is better.
        shares: (d,) float64, weights of the goals that add up to 1.
        best: (d,) float64, the best value of each goal.
        width: (d,) float64, the range of each goal's values, above 0.

    Returns:
        (...) float64.
    """
    short = shares * (values - best) / width
    return np.asarray(short.min(axis=-1) + _SUM * short.sum(axis=-1))


def ends_first(values: NDArray[np.float64]) -> list[int]:
    """An order in which few of many compromises show what there is to choose from.

    The best at each goal in turn, then always the one that is farthest from all that were taken.

    Args:
        values: (n, d) float64, more is better.

    Returns:
        Every row once.
    """
    width = np.maximum(values.max(axis=0) - values.min(axis=0), 1e-9) if len(values) else 1.0
    scaled = values / width
    order = list(dict.fromkeys(int(at) for at in scaled.argmax(axis=0))) if len(values) else []
    while len(order) < len(values):
        away = np.abs(scaled[:, None, :] - scaled[None, order, :]).max(axis=2).min(axis=1)
        away[order] = -1.0
        order.append(int(away.argmax()))
    return order


def _summaries(record: TrialRecord, summary: str) -> dict[str, Summary]:
    """One summary of each scored cell; none unless the trial is complete."""
    if record.status is not TrialStatus.COMPLETE:
        return {}
    return {cell.metrics.cell_id: getattr(cell.metrics, summary) for cell in record.cells if cell.metrics.scored}


def _percentile_noise(known: Summary) -> float:
    """Deviation of the logarithm of a 95th percentile."""
    p50, p95 = known.p50 or 0.0, known.p95 or math.inf
    constant = (p95 - p50) / _HALF_TO_P95
    return math.sqrt(0.95 * 0.05 / known.count) * constant / 0.05 / p95
