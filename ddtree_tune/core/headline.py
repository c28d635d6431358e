"""The answer of a sweep in one to three sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.conclusion import Answer
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.measurements import Basis
from ddtree_tune.core.speedup import BASELINES, NO_SPECULATION, PLAIN_CHAIN
from ddtree_tune.core.tables import ABSENT
from ddtree_tune.core.winners import TIE, Certainty

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddtree_tune.core.conclusion import Conclusion, Setting
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.measurements import Gain
    from ddtree_tune.core.winners import Winner


def headline(conclusion: Conclusion) -> str:
    """The answer in one to three sentences."""
    best, tree = conclusion.best, conclusion.best_tree
    if best is None or tree is None:
        return f"No answer: {conclusion.why}."
    basis = _basis(tree.vs_none, len(conclusion.compared)) if tree.vs_none else ""
    name, measured = _named(tree.config), f"{_against(tree)}, {basis}."
    kind = "tree" if tree.config.algorithm is Algorithm.TREE else "setting"
    chain = f"the {_chain(best.config)}"
    text = {
        Answer.FASTER: f"Run {name}: it is {measured}",
        Answer.UNREPEATED: f"{_named(tree.config)} looks best: {measured}",
        Answer.INCONCLUSIVE: f"Inconclusive. The best {kind}, {name}, is {measured} More rounds (search.final.rounds) "
        "would tell.",
        Answer.CHAIN: f"Run {chain}: no {kind} is faster by more than 1 %. The best one, {name}, is {measured}",
        Answer.OFF: f"Turn speculation off: {'no ' + kind if _maybe(conclusion) else 'nothing'} is faster by more than "
        f"1 %. The best {kind}, {name}, is {measured}",
    }[conclusion.answer]
    return " ".join((text, *_baselines(conclusion), *_coding(conclusion), *_where_off(conclusion)))


def schedule_text(conclusion: Conclusion) -> str:
    """What the schedule by number of users gains as a whole; empty where there is none that was measured again."""
    found = conclusion.scheduled
    if found is None:
        return ""
    best = f" and {gain_text(found.vs_best)} x the best single setting" if found.vs_best else ""
    over = "over the cells that count"
    return f"Each number under its own setting: {gain_text(found.vs_none)} x no speculation{best}, {over}."


def _named(config: EngineConfig) -> str:
    """A setting in words."""
    if config.algorithm is not Algorithm.TREE:
        return config.label
    knobs = f"budget {config.budget}, topk {config.topk}, window {config.window or 'none'}"
    return ", ".join((knobs, *(f"{name} {value}" for name, value in config.flags)))


def _against(setting: Setting) -> str:
    over = ((setting.vs_chain, "the plain chain"), (setting.vs_unrestricted, "the unrestricted chain"))
    chains = (f" and {gain_text(gain)} x {name}" for gain, name in over if gain)
    return f"{gain_text(setting.vs_none)} x no speculation{''.join(chains)}"


def gain_text(gain: Gain | None) -> str:
    """A ratio with its interval; a dash where there is none."""
    if gain is None:
        return ABSENT
    interval = f" ({_bound(gain.interval.low)} to {_bound(gain.interval.high)})" if gain.interval else ""
    return f"{gain.ratio:.2f}{interval}"


def _bound(value: float) -> str:
    """An end of an interval; with a third digit where two would hide on which side of 1 it lies."""
    return f"{value:.3f}" if f"{value:.2f}" == "1.00" else f"{value:.2f}"


def _basis(gain: Gain, cells: int) -> str:
    over = f"over {cells} cell{'s' if cells > 1 else ''}"
    if gain.basis is Basis.SEARCH:
        return f"{over}, from the search's own measurement, not repeated"
    rounds = f"{gain.rounds} rounds" if gain.rounds > 1 else "one round"
    return f"{over}, measured again in {rounds} beside the baselines"


def _maybe(conclusion: Conclusion) -> list[Setting]:
    """Chains that may be faster than no speculation by more than a tie."""
    chains = (one for one in conclusion.settings if one.config in BASELINES and one.config != NO_SPECULATION)
    return [one for one in chains if one.feasible and one.vs_none and _high(one.vs_none) > 1 + TIE]


def _high(gain: Gain) -> float:
    return gain.interval.high if gain.interval else gain.ratio


def _baselines(conclusion: Conclusion) -> Iterable[str]:
    """Sentences on a chain that is recommended or may be better, and on baselines that may not be run."""
    told = _maybe(conclusion) if conclusion.answer is Answer.OFF else []
    if conclusion.answer is Answer.CHAIN and conclusion.best:
        told = [conclusion.best]
    for one in told:
        yield f"The {_chain(one.config)} is {gain_text(one.vs_none)} x no speculation."
    for one in conclusion.settings:
        if one.config in BASELINES and not one.feasible:
            name = "No speculation" if one.config == NO_SPECULATION else f"The {_chain(one.config)}"
            why = "breaks a latency limit (objective.slos)" if one.broken else "violates a constraint, or broke"
            yield f"{name} {why}."


def _chain(config: EngineConfig) -> str:
    return f"{'plain ' if config == PLAIN_CHAIN else ''}{config.label}"


def _coding(conclusion: Conclusion) -> Iterable[str]:
    """A sentence on the problems solved by what is recommended."""
    coding = conclusion.best.coding if conclusion.best else None
    if coding is None or coding.rate.interval is None:
        return
    low, high = coding.rate.interval
    text = f"It passes {coding.rate.passed} of {coding.rate.attempted} problems ({low:.2f} to {high:.2f})"
    if coding.paired is not None:
        more, fewer = coding.paired.only_second, coding.paired.only_first
        text += (
            f", {more} that no speculation fails, and fails {fewer} that it passes "
            f"(McNemar p = {coding.paired.p_value:.2f})"
            if coding.paired.discordant
            else ", the same ones as no speculation"
        )
    yield f"{text}."


def _where_off(conclusion: Conclusion) -> Iterable[str]:
    """A sentence on the cells where speculation does not pay."""
    off = [cell for cell in conclusion.cells if cell.config == NO_SPECULATION]
    sure = [cell for cell in off if cell.certainty is Certainty.SURE]
    unsure = [cell for cell in off if cell.certainty is not Certainty.SURE]
    for cells, what in ((sure, "Turn speculation off at"), (unsure, "Speculation may not pay at")):
        if cells and conclusion.answer is not Answer.OFF:
            yield f"{what}: {'; '.join(map(_place, cells))}."


def _place(cell: Winner) -> str:
    return cell.cells[0] if cell.concurrency is None else f"context {cell.context}, concurrency {cell.concurrency}"
