"""Which configurations cannot be recommended, whatever their speed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import Blame, blame
from ddtree_tune.core.objective import Verdict, Yardstick, broken, failure_class, observe
from ddtree_tune.core.speedup import NO_SPECULATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.objective import Broken
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.workload import Cell


def unfit(records: Sequence[TrialRecord], spec: SweepSpec) -> frozenset[EngineConfig]:
    """Configurations that the engine refused or broke under, or that violate a constraint.

    Of failures that may be chance the first is none; see ``agenda``.
    """
    plain = [record for record in records if record.config == NO_SPECULATION]
    yardstick = replace(Yardstick.of(spec, plain), limits={})
    seen = ((record, observe(record, yardstick)) for record in records)
    found: set[EngineConfig] = set()
    doubted: set[EngineConfig] = set()
    for record, one in seen:
        if one.verdict is Verdict.LOST or one.feasible:
            continue
        failure = failure_class(record)
        chance = failure is not None and blame(failure) is Blame.NOBODY and record.config not in doubted
        (doubted if chance else found).add(record.config)
    return frozenset(found - {NO_SPECULATION})


def slow(records: Sequence[TrialRecord], spec: SweepSpec) -> dict[EngineConfig, tuple[Broken, ...]]:
    """The latency limits that each configuration does not keep, no speculation too: a user waits for either."""
    limits = {cell.cell_id: spec.objective.limits(cell) for cell in spec.load.cells()}
    configs = dict.fromkeys(record.config for record in records)
    return {config: broken([one for one in records if one.config == config], limits) for config in configs}


def breaking(limits: Mapping[EngineConfig, Iterable[Broken]], cells: Iterable[Cell]) -> frozenset[EngineConfig]:
    """Configurations that do not keep a limit in one of some cells."""
    ids = {cell.cell_id for cell in cells}
    return frozenset(config for config, those in limits.items() if any(one.cell_id in ids for one in those))
