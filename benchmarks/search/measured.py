"""The measured surface: how it is kept, and as trials that a search may be told of.

A trial on it is a real one of the setting, with the costs of it, whose cells say what is true of the
setting plus what two real trials of one setting differed by: noise of whole trials, cell by cell, as
it was measured. What is true of a setting is estimated from its own trials and from all others, see
`truth`, or taken to be the mean of its own.
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
from steadied import at_speed, steadied
from truth import estimated

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

    from numpy.typing import NDArray

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
    trial_id = f"{head['order']:04d}-{config.config_id}"
    proposal = Proposal(trial_id, config, Origin.SEARCH, coding=False, round=head["round"])
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
    """A surface of real trials; some settings were measured more than once."""

    spec: SweepSpec
    trials: Mapping[EngineConfig, Sequence[TrialRecord]]
    """Complete ones whose cells all count, at least one of every setting."""
    pooled: bool = True
    """Whether what is true is estimated from all trials; otherwise it is the mean of the setting's own."""

    @classmethod
    def read(cls, *paths: Path, steady: bool = True, pooled: bool = True) -> Measured:
        """Read what was kept.

        Args:
            paths: files; several are further rounds.
            steady: whether to take the machine's own speed out of every cell, see `steadied`.
            pooled: see ``pooled``.
        """
        found: defaultdict[EngineConfig, list[TrialRecord]] = defaultdict(list)
        trials = [trial for path in paths for trial in trials_of(pq.read_table(path).to_pylist())]
        for trial in steadied(trials) if steady else trials:
            if trial.status is TrialStatus.COMPLETE and all(cell.metrics.scored for cell in trial.cells):
                found[trial.config].append(trial)
        return cls(SweepSpec.parse(SPEC, "measured.SPEC"), found, pooled)

    def with_first(self, first: FirstSpec) -> Measured:
        """The same surface where some cells come first, and a trial may be stopped after them."""
        load = self.spec.load.model_copy(update={"first": first})
        return replace(self, spec=self.spec.model_copy(update={"load": load}))

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """The cells, those that come first first."""
        first = [cell.cell_id for cell in self.spec.load.first_cells()]
        return tuple(sorted((cell.cell_id for cell in self.spec.load.cells()), key=lambda name: name not in first))

    @cached_property
    def logs(self) -> dict[EngineConfig, NDArray[np.float64]]:
        """By setting, logarithms of the trials' tokens per second, (trials, cells) float64."""
        return {
            config: np.asarray([[math.log(one.output_tps or 0.0) for one in self._ordered(trial)] for trial in trials])
            for config, trials in self.trials.items()
        }

    @cached_property
    def levels(self) -> dict[EngineConfig, NDArray[np.float64]]:
        """By setting, what is true of each cell, (cells,) float64."""
        return estimated(self.logs) if self.pooled else {config: one.mean(axis=0) for config, one in self.logs.items()}

    @cached_property
    def noise(self) -> NDArray[np.float64]:
        """What whole trials were off by where a setting has several, (trials, cells) float64."""
        several = [one for one in self.logs.values() if len(one) > 1]
        return np.vstack([(one - one.mean(axis=0)) * math.sqrt(len(one) / (len(one) - 1)) for one in several])

    def log_score(self, config: EngineConfig) -> float:
        """Logarithm of the true speed-up over no speculation."""
        return float(self.levels[config].mean() - self.levels[NO_SPECULATION].mean())

    def measure(self, proposal: Proposal, rng: np.random.Generator) -> TrialRecord:
        """A trial."""
        trials = self.trials[proposal.config]
        record = replace(trials[rng.integers(len(trials))], proposal=proposal)
        said = self.levels[proposal.config] + self.noise[rng.integers(len(self.noise))]
        drawn = [
            at_speed(one, log - math.log(one.output_tps or 0.0))
            for one, log in zip(self._ordered(record), said.tolist(), strict=True)
        ]
        cells = tuple(CellResult(metrics, ()) for metrics in drawn)
        first = len(self.spec.load.first_cells())
        if first and proposal.pace and behind(drawn[:first], proposal.pace):
            share = first / len(cells)
            spans = [replace(one, seconds=one.seconds * (share if one.stage == "load" else 1)) for one in record.spans]
            return replace(record, status=TrialStatus.STOPPED, cells=cells[:first], spans=tuple(spans))
        return replace(record, cells=cells)

    def _ordered(self, trial: TrialRecord) -> list[CellMetrics]:
        """A trial's cells in the order of ``cells``."""
        known = {cell.metrics.cell_id: cell.metrics for cell in trial.cells}
        return [known[name] for name in self.cells]
