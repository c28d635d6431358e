"""The measured surface: how it is kept, and as trials that a search may be told of.

A trial on it is a real one: of each cell one of the repeats that were measured. What is true of a
setting is the mean of its repeats' logarithms: what a search that could measure for ever would find.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from steadied import steadied

from ddtree_tune.core.codec import arrow_type, decode_fields, encode_fields, hints
from ddtree_tune.core.engine import EngineConfig
from ddtree_tune.core.metrics import CellMetrics
from ddtree_tune.core.record import CellResult, Origin, Proposal, TrialRecord, TrialStatus
from ddtree_tune.core.rungs import behind
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.speedup import NO_SPECULATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ddtree_tune.core.spec import FirstSpec

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

_ABSENT = ("joules_per_token", "power_w", "gpu_memory_gib", "sm_clock_mhz", "temperature_c")
_EMPTY = ("families", "reasons")
_METRICS = {name: of for name, of in hints(CellMetrics).items() if name not in {*_ABSENT, *_EMPTY}}
_KEPT = {"status", "started_utc", "spans", "effective", "failure"}
_TRIAL = {name: of for name, of in hints(TrialRecord).items() if name in _KEPT}
_CONFIG = {name: of for name, of in hints(EngineConfig).items() if name != "flags"}
"""What is varied: the space has no further flags, and a cell has a column of that name."""
_COLUMNS: dict[str, Any] = {"order": int, "round": int, "machine": str, **_CONFIG, **_TRIAL, **_METRICS}


def rows_of(record: TrialRecord, order: int) -> list[dict[str, Any]]:
    """One trial as a row per cell; one that measured nothing as one row without a cell."""
    trial = {
        "order": order,
        "round": record.proposal.round,
        "machine": record.fingerprint.machine if record.fingerprint else "",
        **encode_fields(record.config, _CONFIG),
        **encode_fields(record, _TRIAL),
    }
    cells = [encode_fields(cell.metrics, _METRICS) for cell in record.cells]
    return [trial | cell for cell in cells or [dict.fromkeys(_METRICS)]]


def keep(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows beside and rename, so that the file is whole at any time."""
    schema = pa.schema([pa.field(name, arrow_type(of)) for name, of in _COLUMNS.items()])
    beside = path.with_name(f".{path.name}")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), beside, compression="zstd")
    beside.replace(path)


def trials_of(rows: Iterable[Mapping[str, Any]]) -> list[TrialRecord]:
    """The trials behind rows."""
    trials: defaultdict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        trials[row["order"], row["started_utc"]].append(row)
    return [_trial(trial) for trial in trials.values()]


def _trial(rows: Sequence[Mapping[str, Any]]) -> TrialRecord:
    head = rows[0]
    config = EngineConfig(**decode_fields(head, _CONFIG))
    proposal = Proposal(
        f"{head['order']:04d}-{config.config_id}", config, Origin.SEARCH, coding=False, round=head["round"]
    )
    blank = dict.fromkeys(_ABSENT) | dict.fromkeys(_EMPTY, ())
    cells = [CellMetrics(**decode_fields(row, _METRICS), **blank) for row in rows if row["cell_id"] is not None]
    return TrialRecord(
        sweep="surface",
        proposal=proposal,
        node=head["machine"],
        cells=tuple(CellResult(cell, ()) for cell in cells),
        **decode_fields(head, _TRIAL),
    )


@dataclass(frozen=True)
class Measured:
    """A surface of real trials, several of every setting."""

    spec: SweepSpec
    trials: Mapping[EngineConfig, Sequence[TrialRecord]]

    @classmethod
    def read(cls, *paths: Path, steady: bool = True) -> Measured:
        """Read what was kept.

        Args:
            paths: files; several are further rounds.
            steady: whether to take the machine's own speed out of every cell, see `steadied`.
        """
        found: defaultdict[EngineConfig, list[TrialRecord]] = defaultdict(list)
        trials = [trial for path in paths for trial in trials_of(pq.read_table(path).to_pylist())]
        for trial in steadied(trials) if steady else trials:
            found[trial.config].append(trial)
        return cls(SweepSpec.parse(SPEC, "measured.SPEC"), found)

    def with_first(self, first: FirstSpec) -> Measured:
        """The same surface where some cells come first, and a trial may be stopped after them."""
        load = self.spec.load.model_copy(update={"first": first})
        return replace(self, spec=self.spec.model_copy(update={"load": load}))

    @cached_property
    def _cells(self) -> dict[EngineConfig, dict[str, list[CellMetrics]]]:
        """Repeats that can be scored, by setting and cell."""
        found: dict[EngineConfig, dict[str, list[CellMetrics]]] = {}
        for config, trials in self.trials.items():
            cells = found.setdefault(config, defaultdict(list))
            for cell in (cell.metrics for trial in trials for cell in trial.cells):
                if cell.scored and cell.output_tps:
                    cells[cell.cell_id].append(cell)
        return found

    @cached_property
    def _true(self) -> dict[EngineConfig, float]:
        """Logarithm of the speed-up over no speculation, by setting."""
        names = [cell.cell_id for cell in self.spec.load.cells()]
        level = {config: self._level(config, names) for config in self.trials}
        return {config: one - level[NO_SPECULATION] for config, one in level.items()}

    def _level(self, config: EngineConfig, names: Sequence[str]) -> float:
        cells = self._cells[config]
        if any(name not in cells for name in names):
            return -math.inf
        return float(np.mean([np.mean([math.log(one.output_tps or 0.0) for one in cells[name]]) for name in names]))

    def log_score(self, config: EngineConfig) -> float:
        """What is true of a setting; minus infinity where a cell of it can never be used."""
        return self._true[config]

    def cell_logs(self, config: EngineConfig) -> dict[str, list[float]]:
        """Logarithms of the repeats' tokens per second, by cell."""
        cells = self._cells[config]
        return {name: [math.log(one.output_tps or 0.0) for one in found] for name, found in cells.items()}

    def measure(self, proposal: Proposal, rng: np.random.Generator) -> TrialRecord:
        """A trial: the costs of one that was measured, and of each cell one of its repeats."""
        trials = self.trials[proposal.config]
        record = replace(trials[rng.integers(len(trials))], proposal=proposal)
        if record.status is not TrialStatus.COMPLETE:
            return record
        first = [cell.cell_id for cell in self.spec.load.first_cells()]
        names = sorted((cell.cell_id for cell in self.spec.load.cells()), key=lambda name: name not in first)
        drawn = [found[rng.integers(len(found))] for name in names if (found := self._cells[proposal.config][name])]
        cells = tuple(CellResult(metrics, ()) for metrics in drawn)
        if first and proposal.pace and behind(drawn[: len(first)], proposal.pace):
            share = len(first) / len(names)
            spans = [replace(one, seconds=one.seconds * (share if one.stage == "load" else 1)) for one in record.spans]
            return replace(record, status=TrialStatus.STOPPED, cells=cells[: len(first)], spans=tuple(spans))
        return replace(record, cells=cells)
