"""Measured cells as a table for people and as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.absent import OF_GPUS
from ddtree_tune.core.metrics import CellMetrics
from ddtree_tune.core.tables import ABSENT, text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.metrics import Summary
    from ddtree_tune.core.workload import Cell

_HEAD = (
    "cell",
    ">tok/s",
    ">95 %",
    ">user",
    ">ttft ms",
    ">itl ms",
    ">accept",
    ">in flight",
    ">ok",
    ">failed",
)


def cell_lines(cells: Sequence[CellMetrics]) -> list[str]:
    """A row per cell and, below, why numbers are absent; a dash is a number that is not known."""
    rows = [
        (
            cell_name(cell),
            _rate(cell.output_tps),
            f"{_rate(cell.output_tps_ci95.low)} to {_rate(cell.output_tps_ci95.high)}"
            if cell.output_tps_ci95
            else ABSENT,
            _rate(cell.user_tps),
            _ms(cell.ttft_s),
            _ms(cell.itl_s),
            _number(cell.accept_len, 2),
            _number(cell.in_flight_mean, 2),
            str(cell.requests_ok),
            str(cell.requests_failed),
        )
        for cell in cells
    ]
    metered = [cell for cell in cells if any(getattr(cell, name) is not None for name in OF_GPUS)]
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        for field, why in cell.reasons:
            if field in OF_GPUS and not metered:
                continue  # a laptop's reader needs no word of it
            reasons.setdefault(f"{field}: {why}", []).append(cell_name(cell))
    errors = [
        f"  {cell_name(cell)}: " + ", ".join(f"{count} {kind}" for kind, count in cell.errors)
        for cell in cells
        if cell.requests_failed
    ]
    everywhere = {len(cells): "every cell"}
    absent = [f"  {why} ({everywhere.get(len(where)) or ', '.join(where)})" for why, where in reasons.items()]
    flagged = [
        f"  {cell_name(cell)}: {', '.join(cell.flags)}" + ("" if cell.scored else "; not to be compared with others")
        for cell in cells
        if cell.flags
    ]
    families = [
        f"  {cell_name(cell)}: " + ", ".join(f"{one.family} {_number(one.accept_len, 2)}" for one in cell.families)
        for cell in cells
        if len(cell.families) > 1 and cell.accept_len is not None
    ]
    return [
        *text_table(_HEAD, rows),
        *(["", "Tokens per verify step by family of prompts", *families] if families else []),
        *(["", "GPUs of the node, all together", *_gpu_lines(metered)] if metered else []),
        *(["", "Flags", *flagged] if flagged else []),
        *(["", "Absent numbers", *absent] if absent else []),
        *(["", "Requests that did not end well", *errors] if errors else []),
    ]


def _gpu_lines(cells: Sequence[CellMetrics]) -> list[str]:
    """A row per cell that was metered."""
    head = ("cell", ">J/token", ">W", ">GiB", ">SM MHz", ">max C")
    rows = [
        (
            cell_name(cell),
            _number(cell.joules_per_token, 3),
            _number(cell.power_w, 0),
            _number(cell.gpu_memory_gib, 1),
            _number(cell.sm_clock_mhz, 0),
            _number(cell.temperature_c, 0),
        )
        for cell in cells
    ]
    return text_table(head, rows)


def cell_name(cell: CellMetrics) -> str:
    """A cell in a few characters, as in ``i512 c8``."""
    return f"i{cell.context} {cell.cell_id.rpartition('_')[2]}"


def cell_fields(cell: CellMetrics) -> dict[str, Any]:
    """One cell as JSON holds it; what is absent is null and ``reasons`` says why."""
    return asdict(cell) | {
        "scored": cell.scored,
        "errors": dict(cell.errors),
        "reasons": dict(cell.reasons),
    }


def unmeasured_fields(cell: Cell, why: str) -> dict[str, Any]:
    """A cell that was not measured, with the keys of one that was."""
    fields: dict[str, Any] = dict.fromkeys(CellMetrics.__dataclass_fields__)
    return fields | {
        "cell_id": cell.cell_id,
        "context": cell.context,
        "concurrency": cell.concurrency,
        "repeats": 0,
        "flags": [],
        "scored": False,
        "errors": {},
        "reasons": {"output_tps": why},
    }


def _rate(value: float | None) -> str:
    """Tokens per second to four digits or the whole number."""
    return ABSENT if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _number(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _ms(summary: Summary) -> str:
    return ABSENT if summary.p50 is None else f"{1e3 * summary.p50:.1f}"
