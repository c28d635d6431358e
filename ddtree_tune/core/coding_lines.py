"""The coding evaluation in words: outcomes beside every rate, and where a setting's text differs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import NOT_ATTEMPTED, Outcome, at_concurrencies, count_outcomes, latest, served
from ddtree_tune.core.coding_result import SIGNIFICANT
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.tables import ABSENT, WIDTH, cut, text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddtree_tune.core.coding import Attempt, PassRate
    from ddtree_tune.core.coding_result import CodingResult
    from ddtree_tune.core.divergence import Likeness
    from ddtree_tune.core.stats import Interval


def outcome_text(rate: PassRate) -> str:
    """Passed of attempted, and what became of the others, as in "20 of 25: 4 wrong_answer, 1 truncated"."""
    failed, apart = _others(rate, attempted=True), _others(rate, attempted=False)
    text = f"{rate.passed} of {rate.attempted}" + (f": {failed}" if failed else "")
    return f"{text}; not counted: {apart}" if apart else text


def rate_text(rate: PassRate) -> str:
    """Both rates with their intervals."""
    return (
        f"over all {_with_interval(rate.over_all, rate.interval)}, "
        f"over completed {_with_interval(rate.over_completed, rate.completed_interval)}"
    )


def elsewhere(attempts: Iterable[Attempt]) -> str:
    """The pass rate at other concurrencies where it is not that of the served one, as in "19/25 at 1"."""
    found = latest(attempts)
    here = count_outcomes(one.outcome for one in served(found))
    rates = {users: count_outcomes(one.outcome for one in of) for users, of in at_concurrencies(found).items()}
    return ", ".join(
        f"{rate.passed}/{rate.attempted} at {users}"
        for users, rate in rates.items()
        if (rate.passed, rate.attempted) != (here.passed, here.attempted)
    )


def coding_section(results: Sequence[CodingResult], margin: float) -> list[str]:
    """The evaluation of all settings.

    Args:
        results: no speculation first.
        margin: share of the problems by which a setting may pass fewer.
    """
    if not results:
        return []
    users = results[0].concurrency
    title = "Coding" + (f" at concurrency {users}" if users else "") + " (95 % intervals; p: McNemar's exact test)"
    head = ("setting", ">passed", "over all", "over completed", "less no speculation", ">p")
    alike = [one for one in results if one.like(results[0])]
    shown = [one for one in results if one not in alike]
    rows = [
        (
            cut(one.config.label, 24),
            f"{one.rate.passed}/{one.rate.attempted}",
            _short(one.rate.over_all, one.rate.interval),
            _short(one.rate.over_completed, one.rate.completed_interval),
            _difference(one),
            f"{one.paired.p_value:.2f}" if one.paired and one.paired.total else ABSENT,
        )
        for one in shown
    ]
    notes = [*(note for one in shown for note in _notes(one)), *_alike(alike)]
    faults = [_fault(one) for one in results if one.dropped(margin)]
    return [title, *text_table(head, rows), *(line for text in (*notes, *faults) for line in _wrapped(text))]


def _notes(one: CodingResult) -> Iterator[str]:
    """What the row of a setting has no room for."""
    said = [_others(one.rate, attempted=True)]
    if apart := _others(one.rate, attempted=False):
        said.append(f"not counted: {apart}")
    said += [f"pass@{k} {value:.2f}" for k, value in one.pass_at_k]
    here = (one.rate.passed, one.rate.attempted)
    said += [
        f"{other.rate.passed}/{other.rate.attempted} at {other.concurrency}"
        for other in one.others
        if (other.rate.passed, other.rate.attempted) != here
    ]
    if one.likeness is not None and one.likeness.earliest is not None:
        same = f"{one.likeness.same} of {one.likeness.compared} texts as no speculation's"
        said.append(f"{same}, {_earliest(one.likeness)}")
    elif one.likeness is not None:
        said.append(f"all {one.likeness.compared} greedy texts as no speculation's")
    if any(said):
        yield f"{one.config.label}: {'; '.join(filter(None, said))}"


def _alike(alike: Sequence[CodingResult]) -> Iterator[str]:
    """One line for all settings that pass and fail what no speculation does, with the same greedy texts."""
    for count in sorted({one.likeness.compared if one.likeness else 0 for one in alike}, reverse=True):
        names = [one.config.label for one in alike if (one.likeness.compared if one.likeness else 0) == count]
        texts = f", and all {count} greedy texts are the same" if count else ""
        yield f"Passed and failed as no speculation{texts}: {', '.join(names)}"


def _fault(one: CodingResult) -> str:
    """A drop, which greedy verification cannot explain."""
    pair = one.paired
    if pair is None:
        return ""
    chance = f"p = {pair.p_value:.2f}" + ("" if pair.p_value <= SIGNIFICANT else ", chance is not ruled out")
    text = (
        f"Probable numerics fault of {one.config.label}: it fails {pair.only_first} problems that no speculation "
        f"passes, and passes {pair.only_second} that it fails ({chance})"
    )
    if one.likeness is None:
        return f"{text}; there is no greedy text to compare."
    if one.likeness.earliest is None:
        return f"{text}; yet its greedy text is the same: look at how the programs were run."
    return f"{text}; its text {_earliest(one.likeness)}."


def _earliest(like: Likeness) -> str:
    """Where the first difference lies."""
    one = like.earliest
    if one is None:
        return ""
    users = "" if one.concurrency is None else f" at concurrency {one.concurrency}"
    if one.tokens is None:
        where = f"after {one.char} characters; the server did not count tokens by chunk"
    elif one.tokens.first == one.tokens.last:
        where = f"at token {one.tokens.first}"
    else:
        where = f"between tokens {one.tokens.first} and {one.tokens.last}"
    return f"first differs in {one.problem_id}{users} {where}"


def _others(rate: PassRate, *, attempted: bool) -> str:
    """The outcomes that are no pass, the commonest first."""
    found = [(name, n) for name, n in rate.outcomes if name != Outcome.PASS]
    found = [(name, n) for name, n in found if (Outcome(name) not in NOT_ATTEMPTED) == attempted]
    return ", ".join(f"{n} {name}" for name, n in sorted(found, key=lambda one: (-one[1], one[0])))


def _difference(one: CodingResult) -> str:
    pair = one.paired
    if pair is None:
        return "" if one.config == NO_SPECULATION else ABSENT
    if pair.difference is None or pair.interval is None:
        return ABSENT
    return f"{pair.difference:+.2f} ({pair.interval.low:+.2f} to {pair.interval.high:+.2f})"


def _short(value: float | None, interval: Interval | None) -> str:
    return ABSENT if value is None or interval is None else f"{value:.2f} ({interval.low:.2f}-{interval.high:.2f})"


def _with_interval(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return "unknown"
    return f"{value:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
