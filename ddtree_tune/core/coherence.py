"""Whether what a setting says is text at all, so that fast garbage never wins.

A broken kernel may repeat one word at three times the speed, with every draft accepted. Healthy
models loop too, above all in load, where generation goes on behind the natural end of the answer.
So no text is judged alone: a setting is compared with no speculation on the same questions, and
what it writes as garbage where no speculation does not must be more than chance allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import latest
from ddtree_tune.core.degenerate import degeneration
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.paired import binomial_tail
from ddtree_tune.core.record import CellTexts, Failure, TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import CellResult, TrialRecord

NATURAL_CHANCE = 0.05
"""A natural excess that chance gives less often is none."""
NATURAL_LEAST = 2
"""Replies of an excess at least: one alone may be a token that a batch flipped."""
NATURAL_SHARE = 0.01
"""Share of replies that a healthy setting may spoil alone."""
LOAD_CHANCE = 0.001
"""Every cell of every trial is looked at, so chance must give an excess very rarely."""
LOAD_SHARE = 0.05
"""An excess under load is more of the replies than this."""


@dataclass(frozen=True, slots=True)
class Excess:
    """Degenerate replies of two configurations to the same questions."""

    compared: int
    only_mine: int
    """Degenerate where the baseline's reply is not."""
    only_base: int

    @property
    def natural(self) -> bool:
        """Whether replies that ended by themselves are degenerate more often than the baseline's.

        Where the baseline never is alone: so many of so many when each is with a chance of 1 %.
        Otherwise the one-sided sign test of the two kinds of discordant pair.
        """
        n, k = self.compared, self.only_mine
        if self.only_base:
            chance = binomial_tail(k, k + self.only_base)
        else:
            p = NATURAL_SHARE
            chance = 1 - sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k))
        return k >= NATURAL_LEAST and chance <= NATURAL_CHANCE

    @property
    def under_load(self) -> bool:
        """Whether replies cut at a fixed length are: by the sign test, and by more than 5 % of them."""
        chance = binomial_tail(self.only_mine, self.only_mine + self.only_base)
        return chance <= LOAD_CHANCE and self.only_mine - self.only_base > LOAD_SHARE * self.compared


def cell_texts(cell: CellResult) -> CellTexts:
    """What a cell's replies look like, by their prompts; requests that failed said nothing."""
    said = {
        trace.prompt_sha: degeneration(trace.reasoning + trace.text)
        for run in cell.runs
        for trace in run.traces
        if trace.ok
    }
    return CellTexts(cell.metrics.cell_id, tuple(said), tuple(prompt for prompt, kind in said.items() if kind))


def judged(records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
    """The records, those of settings that write garbage made failures: none of their cells is scored.

    One trial condemns its configuration: the speed of the same garbage elsewhere is no better.

    Args:
        records: of one sweep, in any order. Without a complete trial of no speculation among them
            nothing is judged.
    """
    ordered = tuple(records)
    complete = [one for one in ordered if one.measured]
    base = [one for one in complete if one.config == NO_SPECULATION]
    natural, load = _natural(base), _load(base)
    faults: dict[EngineConfig, Failure] = {}
    for one in complete if base else ():
        if one.config != NO_SPECULATION and one.config not in faults and (found := _fault(one, natural, load)):
            faults[one.config] = found
    return tuple(
        replace(one, status=TrialStatus.FAILED, failure=faults[one.config])
        if one.config in faults and one.measured
        else one
        for one in ordered
    )


def _fault(
    record: TrialRecord, natural: Mapping[Hashable, bool], load: Mapping[str, Mapping[Hashable, bool]]
) -> Failure | None:
    """What is wrong with the texts of one trial, if anything."""
    replies = _excess([(natural, _natural([record]))])
    if replies.natural:
        return _failure("coding", f"{_count(replies)} natural replies")
    mine = _load([record])
    cells = {cell: _excess([(load.get(cell, {}), said)]) for cell, said in mine.items()}
    for cell, excess in cells.items():
        if excess.under_load:
            return _failure("load", f"{_count(excess)} replies to the same prompts in {cell}")
    whole = _excess([(load.get(cell, {}), said) for cell, said in mine.items()])
    if whole.under_load:
        return _failure("load", f"{_count(whole)} replies to the same prompts over all cells")
    return None


def _failure(stage: str, what: str) -> Failure:
    reason = f"{what} are degenerate where no speculation's are not; the speed of such output is not scored"
    return Failure(FailureClass.DEGENERATE_OUTPUT, stage, reason, "")


def _count(excess: Excess) -> str:
    return f"{excess.only_mine} of {excess.compared}"


def _excess(pairs: Sequence[tuple[Mapping[Hashable, bool], Mapping[Hashable, bool]]]) -> Excess:
    """Compare replies to the same questions, as (baseline's, mine)."""
    both = [(base[key], mine[key]) for base, mine in pairs for key in mine if key in base]
    return Excess(len(both), sum(ours and not theirs for theirs, ours in both), sum(t and not o for t, o in both))


def _natural(records: Iterable[TrialRecord]) -> dict[Hashable, bool]:
    """Which natural replies are degenerate: to the gate's question, and to each problem."""
    found: dict[Hashable, bool] = {}
    for record in records:
        if record.answer is not None:
            found["gate"] = degeneration(record.answer) is not None
        for one in latest(record.attempts):
            if one.reply.error is None:
                found[one.key] = one.degenerate is not None
    return found


def _load(records: Iterable[TrialRecord]) -> dict[str, dict[Hashable, bool]]:
    """Which replies under load are degenerate, by cell and prompt."""
    found: dict[str, dict[Hashable, bool]] = {}
    for record in records:
        for one in record.texts:
            bad = frozenset(one.degenerate)
            found.setdefault(one.cell_id, {}).update({prompt: prompt in bad for prompt in one.prompts})
    return found
