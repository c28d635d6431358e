"""Where the numbers come from: machines, versions, what was asked and not given, and the spec as run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddtree_tune.core.page.model import Code, Section, Table
from ddtree_tune.core.page.words import short_id
from ddtree_tune.core.tables import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.page.model import Block
    from ddtree_tune.core.record import Fingerprint, TrialRecord
    from ddtree_tune.core.spec import SweepSpec

_NAME = 12
"""Characters of a node's name in the cluster that tell it from others."""
_HOW = "What one needs to judge the numbers, or to have them again."


def provenance_section(
    records: Sequence[TrialRecord], spec: SweepSpec, spec_text: str, driver: Fingerprint | None
) -> Section:
    """The driver, every node, the engine, the differences, the spec."""
    versions = sorted({one.effective.version for one in records if one.effective and one.effective.version})
    launched = [one.plan for one in records if one.plan is not None]
    begun = sorted(record.started_utc for record in records)
    about: list[tuple[str, str]] = [
        ("sweep", spec.name),
        ("engine", " ".join((spec.engine.kind, *versions))),
        ("dialect", spec.engine.spelling),
        ("first and last trial begun (UTC)", f"{begun[0]} and {begun[-1]}" if begun else ABSENT),
        ("load sent to", ", ".join(sorted({_door(one.door) for one in records if one.door})) or "not kept"),
    ]
    blocks: list[Block] = [Table(("", ""), tuple(about))]
    nodes = {one.node: one.fingerprint for one in records if one.fingerprint is not None}
    for name, found in sorted(nodes.items()):
        blocks.append(Table(("", ""), _machine(found), f"Node {found.hostname} ({name[:_NAME]})"))
    if driver is not None and not any(_same(driver, found) for found in nodes.values()):
        blocks.append(Table(("", ""), _machine(driver), "Driven from"))
    differ = tuple((short_id(one), one.config.label, str(diff)) for one in records for diff in one.differences)
    if differ:
        blocks.append(Table(("trial", "setting", "difference"), differ, "Not as asked"))
    if launched:
        blocks.append(Code(" ".join(launched[-1].argv), "The last launch, word for word"))
    blocks.append(Code(spec_text.strip(), "The spec as run (sweep.yaml)"))
    return Section("provenance", "Provenance", _HOW, tuple(blocks))


def _door(door: str) -> str:
    """The path of an address: hosts and ports are each trial's own."""
    return "/" + door.partition("//")[2].partition("/")[2]


def _same(driver: Fingerprint, node: Fingerprint) -> bool:
    """Whether they are one machine with the same software."""
    return replace(driver, load_average=node.load_average) == node


def _machine(one: Fingerprint) -> tuple[tuple[str, str], ...]:
    memory = f", {one.memory_gib:g} GiB" if one.memory_gib is not None else ""
    dirty = {True: ", with changes", False: "", None: ""}[one.git_dirty]
    return (
        ("host", one.hostname),
        ("machine", f"{one.machine}{memory}"),
        ("GPUs", ", ".join(one.gpus) or "none"),
        ("driver", one.driver or ABSENT),
        ("system", f"{one.os}, Python {one.python}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in one.packages)),
        ("commit of ddtree_tune", f"{one.git_commit}{dirty}" if one.git_commit else "not run from a checkout"),
        ("load when it was read", f"{one.load_average:g}" if one.load_average is not None else ABSENT),
    )
