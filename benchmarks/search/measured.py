"""The measured surface: how it is kept, and as trials that a search may be told of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ddtree_tune.core.codec import arrow_type, encode_fields, hints
from ddtree_tune.core.engine import EngineConfig
from ddtree_tune.core.metrics import CellMetrics
from ddtree_tune.core.record import TrialRecord

if TYPE_CHECKING:
    from pathlib import Path

    from ddtree_tune.core.spec import SweepSpec

SPEC = """
name: surface
space:
  budget: [4, 6, 8, 10, 12, 16, 20, 24, 32]
  topk: [1, 2, 3, 4, 8]
  window: [64, 128, 256, none]
load:
  contexts: [60, 256]
  concurrency: [1, 4, 16]
  output_tokens: 64
  window_s: 0.8
  min_requests: 4
coding: null
search: {trials: 24, final: {settings: 0}}
"""
"""What is measured: the space and the load of a sweep on a laptop."""

_LEFT_OUT = ("families", "joules_per_token", "power_w", "gpu_memory_gib", "sm_clock_mhz", "temperature_c", "reasons")
_METRICS = {name: of for name, of in hints(CellMetrics).items() if name not in _LEFT_OUT}
_TRIAL = {
    name: of
    for name, of in hints(TrialRecord).items()
    if name in {"status", "started_utc", "spans", "effective", "failure"}
}
_CONFIG = hints(EngineConfig)
_COLUMNS: dict[str, Any] = {"order": int, "round": int, "machine": str, **_CONFIG, **_TRIAL, **_METRICS}


def rows_of(record: TrialRecord, order: int) -> list[dict[str, Any]]:
    """One trial as a row per cell; one that measured nothing as one row without a cell."""
    machine = record.fingerprint.machine if record.fingerprint else ""
    trial = {
        "order": order,
        "round": record.proposal.round,
        "machine": machine,
        **encode_fields(record.config, _CONFIG),
        **encode_fields(record, _TRIAL),
    }
    cells = [encode_fields(cell.metrics, _METRICS) for cell in record.cells]
    return [trial | cell for cell in cells or [dict.fromkeys(_METRICS)]]


def keep(spec: SweepSpec, rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows beside and rename, so that the file is whole at any time."""
    schema = pa.schema([pa.field(name, arrow_type(of)) for name, of in _COLUMNS.items()])
    schema = schema.with_metadata({"spec": json.dumps(spec.model_dump(mode="json"))})
    beside = path.with_name(f".{path.name}")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), beside, compression="zstd")
    beside.replace(path)
