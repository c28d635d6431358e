"""How far a sweep has come, from its records alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.agenda import Agenda, Slot
from ddtree_tune.core.dialects import select
from ddtree_tune.core.errors import INFRASTRUCTURE, SpecError
from ddtree_tune.core.objective import failure_class
from ddtree_tune.core.plan import plan
from ddtree_tune.core.record import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec


def why_partial(records: Sequence[TrialRecord], spec: SweepSpec) -> str | None:
    """Why there may be more to come; None once the sweep is over.

    Args:
        records: what it left so far.
        spec: the sweep.
    """
    agenda = _agenda(records, spec)
    wanted = plan(spec)
    if agenda is not None and agenda.stopped is not None:
        return f"The sweep gave up: {agenda.stopped}."
    if agenda is not None and (
        agenda.over or (spec.search.trace and _measured_again(agenda, spec.search.final.rounds))
    ):
        return None
    searched = {one.config for one in records if one.proposal.origin is not Origin.FINAL and one.measured}
    finals = {
        (one.config, one.proposal.round) for one in records if one.proposal.origin is Origin.FINAL and one.measured
    }
    least = f" of {wanted.finals}" if len(finals) <= wanted.finals else ""  # more for some numbers of users, or later
    again = f" and {len(finals)}{least} repeated measurements" if wanted.finals else ""
    return (
        f"Partial: {len(searched)} of {wanted.trials} settings{again} are in. The sweep runs, or was interrupted; what "
        "is said here may change."
    )


def _measured_again(agenda: Agenda, rounds: int) -> bool:
    """Whether the last rounds of the finals hold the same settings, and the search wants no more.

    Traces have a say in who is measured again, and the records do not hold them.
    """
    arms: dict[int, set[tuple[EngineConfig, tuple[int, ...]]]] = {}
    for slot in agenda.told:
        if slot.origin is Origin.FINAL:
            arms.setdefault(slot.round, set()).add((slot.config, slot.users))
    last = [arms[turn] for turn in sorted(arms)][-rounds:]
    return not agenda.wants_proposal and len(last) == rounds and all(one == last[0] for one in last)


def _agenda(records: Sequence[TrialRecord], spec: SweepSpec) -> Agenda | None:
    """What is left to run; None where the drafter's block size, which that depends on, is not known."""
    known = (one.effective.block_size for one in records if one.effective and one.effective.block_size)
    try:
        agenda = Agenda(spec, select(spec.engine, spec.engine.block_size or next(known, None)))
    except SpecError:
        return None
    for record in sorted(records, key=lambda one: one.trial_id):
        if failure_class(record) not in INFRASTRUCTURE:
            agenda.tell(Slot.of(record.proposal), record)
    return agenda
