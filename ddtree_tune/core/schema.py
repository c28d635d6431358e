"""What is kept: four tables of four grains, and records from and to them.

``trials`` has a row per trial, ``cells`` one per cell of its matrix, ``requests`` one per request
with every chunk's arrival, ``attempts`` one per coding problem. Together they hold the whole record
but its log, so that every number can be computed again. Units and meanings are in the fields'
metadata, the version in the table's.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ddtree_tune.core.codec import arrow_type, decode_fields, encode, encode_fields, hints, struct_type, utf8
from ddtree_tune.core.coding import Attempt
from ddtree_tune.core.columns import MEANINGS, unit
from ddtree_tune.core.engine import EngineConfig
from ddtree_tune.core.metrics import CellMetrics
from ddtree_tune.core.record import CellResult, Proposal, TrialRecord
from ddtree_tune.core.trace import CellRun, RequestTrace
from ddtree_tune.core.workload import Cell, ClosedLoop, OpenLoop

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 1
"""Raised when a column changes its meaning, its unit or its type."""
VERSION_KEY = b"schema_version"


def _fields(kind: type, *left_out: str) -> dict[str, Any]:
    return {name: of for name, of in hints(kind).items() if name not in left_out}


_IDENTITY: dict[str, Any] = {"sweep": str, "trial_id": str, "config_id": str, "schema_version": int}
_CONFIG = _fields(EngineConfig)
_PROPOSAL = _fields(Proposal, "trial_id", "config")
_RECORD = _fields(TrialRecord, "sweep", "proposal", "cells", "attempts", "log")
_METRICS = _fields(CellMetrics)
_RUN = _fields(CellRun, "cell", "traces") | {
    **_fields(Cell, "arrival", "context"),
    "concurrency": int | None,
    "rate_rps": float | None,
}
_TRACE = _fields(RequestTrace)
_ATTEMPT = _fields(Attempt)
_COLUMNS: dict[str, dict[str, Any]] = {
    "trials": {**_IDENTITY, "label": str, **_CONFIG, **_PROPOSAL, **_RECORD, "seconds": float},
    "cells": {**_IDENTITY, **_METRICS},
    "requests": {**_IDENTITY, "cell_id": str, "repeat": int, **_TRACE, "output_sha": str},
    "attempts": {**_IDENTITY, **_ATTEMPT},
}
"""Columns of each table with the type of their values in a record."""
TABLES = tuple(_COLUMNS)


def schema(table: str) -> pa.Schema:
    """The Arrow schema of one table."""
    types = {name: arrow_type(of) for name, of in _COLUMNS[table].items()}
    if table == "cells":
        types["runs"] = pa.list_(struct_type(_RUN))
    columns = [
        pa.field(name, of, metadata={"unit": unit(name), "meaning": MEANINGS[table].get(name, "")})
        for name, of in types.items()
    ]
    return pa.schema(columns, metadata={VERSION_KEY: str(SCHEMA_VERSION), b"table": table})


def tables(record: TrialRecord) -> dict[str, pa.Table]:
    """One trial as rows of every table; a table may have none."""
    config = record.config
    identity = {
        "sweep": record.sweep,
        "trial_id": record.trial_id,
        "config_id": config.config_id,
        "schema_version": SCHEMA_VERSION,
    }
    trial = {
        **identity,
        "label": config.label,
        **encode_fields(config, _CONFIG),
        **encode_fields(record.proposal, _PROPOSAL),
        **encode_fields(record, _RECORD),
        "seconds": record.seconds,
    }
    rows: dict[str, list[dict[str, Any]]] = {
        "trials": [trial],
        "cells": [
            {**identity, **encode_fields(cell.metrics, _METRICS), "runs": [_run_row(run) for run in cell.runs]}
            for cell in record.cells
        ],
        "requests": [
            {**identity, "cell_id": run.cell.cell_id, "repeat": run.repeat}
            | encode_fields(trace, _TRACE)
            | {"output_sha": output_sha(trace)}
            for cell in record.cells
            for run in cell.runs
            for trace in run.traces
        ],
        "attempts": [{**identity, **encode_fields(attempt, _ATTEMPT)} for attempt in record.attempts],
    }
    return {name: pa.Table.from_pylist(found, schema=schema(name)) for name, found in rows.items()}


def records(found: Mapping[str, pa.Table]) -> tuple[TrialRecord, ...]:
    """The records behind rows of many trials, in the order of the trials' rows.

    Args:
        found: tables by name. Without ``requests`` the cells come without their raw runs, which is
            all that a conclusion needs.
    """
    requests = _by(found["requests"], "trial_id", "cell_id", "repeat") if "requests" in found else None
    cells, attempts = _by(found["cells"], "trial_id"), _by(found["attempts"], "trial_id")
    return tuple(
        TrialRecord(
            sweep=row["sweep"],
            proposal=Proposal(
                trial_id=row["trial_id"],
                config=EngineConfig(**decode_fields(row, _CONFIG)),
                **decode_fields(row, _PROPOSAL),
            ),
            cells=tuple(_cell(one, requests) for one in cells.get((row["trial_id"],), [])),
            attempts=tuple(Attempt(**decode_fields(one, _ATTEMPT)) for one in attempts.get((row["trial_id"],), [])),
            **decode_fields(row, _RECORD),
        )
        for row in found["trials"].to_pylist()
    )


def output_sha(trace: RequestTrace) -> str:
    """First 16 hex digits of the sha256 of all that a request generated: equal outputs can be proved."""
    return hashlib.sha256(utf8(f"{trace.reasoning}\0{trace.text}").encode()).hexdigest()[:16]


def _run_row(run: CellRun) -> dict[str, Any]:
    arrival = run.cell.arrival
    flat = {
        **{name: getattr(run, name) for name in _RUN if hasattr(run, name)},
        **{name: getattr(run.cell, name) for name in _RUN if hasattr(run.cell, name)},
        "rate_rps": arrival.rate_rps if isinstance(arrival, OpenLoop) else None,
    }
    return {name: encode(flat[name], of) for name, of in _RUN.items()}


def _cell(row: Mapping[str, Any], requests: _Groups | None) -> CellResult:
    """One cell; with its raw runs if there are requests."""
    metrics = CellMetrics(**decode_fields(row, _METRICS))
    if requests is None:
        return CellResult(metrics, ())
    runs = []
    for head in row["runs"]:
        parts = decode_fields(head, _RUN)
        rate, users = parts.pop("rate_rps"), parts.pop("concurrency")
        arrival = ClosedLoop(users) if rate is None else OpenLoop(rate)
        shape = {name: parts.pop(name) for name in _fields(Cell, "arrival", "context")}
        traces = requests.get((row["trial_id"], row["cell_id"], head["repeat"]), [])
        known = tuple(RequestTrace(**decode_fields(one, _TRACE)) for one in traces)
        runs.append(CellRun(cell=Cell(context=metrics.context, arrival=arrival, **shape), traces=known, **parts))
    return CellResult(metrics, tuple(runs))


_Groups: TypeAlias = "dict[tuple[Any, ...], list[dict[str, Any]]]"


def _by(table: pa.Table, *keys: str) -> _Groups:
    """Rows by the values of some columns, in their order."""
    groups: _Groups = {}
    for row in table.to_pylist():
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups
