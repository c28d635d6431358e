"""A sweep as gauges at Ray's Prometheus endpoint; docs/grafana.json draws them.

Ray exports a gauge of name x as ``ray_x`` on the metrics port of the driver's node, and
forgets it when it was not set for 20 seconds: all that is known is set again and again.
What is not known is not set: a missing series, never a zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray.util.metrics import Gauge

from ddtree_tune.core.coherence import judged
from ddtree_tune.core.record import TrialStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.record import Proposal, TrialRecord
    from ddtree_tune.trial import TrialEvent

_TRIAL = ("sweep", "trial", "setting")
_CELL = (*_TRIAL, "context", "concurrency")
GAUGES = {
    "nodes": (("sweep",), "Exclusive nodes that are up"),
    "trials": (("sweep", "status"), "Trials by status: pending, running, complete, rejected, failed"),
    "stage": ((*_TRIAL, "stage"), "1 while a trial is in this stage, or has just measured this cell; 0 afterwards"),
    "output_tps": (_CELL, "Output tokens per second of a cell"),
    "accept_len": (_CELL, "Tokens per verify step of a cell"),
    "pass_rate": (_TRIAL, "Problems passed by problems attempted, at the concurrency that is served"),
    "node_seconds": (("sweep", "stage"), "Node time of this run's trials that ended, by stage"),
    "node_held_seconds": (("sweep",), "Nodes that are up, summed over the time of this run"),
}
"""Tags and meaning of each gauge; its name at the endpoint is ``ray_ddtree_tune_`` and the key."""


class Gauges:
    """Every gauge of one sweep, set from the driver."""

    def __init__(self, sweep: str, earlier: int) -> None:
        """Start gauges.

        Args:
            sweep: its name, a label of every gauge.
            earlier: how many records an earlier run left; their node time is not this run's.
        """
        self._sweep = sweep
        self._earlier = earlier
        self._gauges = {name: Gauge(f"ddtree_tune_{name}", text, tags) for name, (tags, text) in GAUGES.items()}
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        """By gauge and tags."""
        self._stages: dict[str, dict[str, str]] = {}
        self._held_s = 0.0

    def tick(self, nodes: int, passed_s: float) -> None:
        """So many nodes were up for so long; what was set before is set again."""
        self._held_s += nodes * passed_s
        self._set("nodes", nodes)
        self._set("node_held_seconds", self._held_s)
        for (name, tags), value in self._values.items():
            self._gauges[name].set(value, dict(tags))

    def trials(self, running: int, pending: int) -> None:
        """Trials that have not ended."""
        self._set("trials", running, status="running")
        self._set("trials", pending, status="pending")

    def happened(self, proposal: Proposal, event: TrialEvent) -> None:
        """A trial told an event."""
        trial = {"trial": proposal.trial_id, "setting": proposal.config.label}
        self.leave(proposal)
        if event.record is None:
            now = trial | {"stage": event.stage if event.cell is None else event.cell.cell_id}
            self._stages[proposal.trial_id] = now
            self._set("stage", 1, **now)
        if event.cell is not None:
            self._cell(trial, event.cell)
        if event.pass_rate is not None:
            self._set("pass_rate", event.pass_rate.over_all, **trial)

    def leave(self, proposal: Proposal) -> None:
        """A trial is no longer where it was."""
        left = self._stages.pop(proposal.trial_id, None)
        if left is not None:
            self._clear("stage", **left)

    def ended(self, records: Sequence[TrialRecord]) -> None:
        """What all trials that ended have come to; garbage is judged as a failure."""
        statuses = [record.status for record in judged(records)]
        for status in TrialStatus:
            self._set("trials", statuses.count(status), status=status.value)
        seconds: dict[str, float] = {}
        for record in records[self._earlier :]:
            for span in record.spans:
                seconds[span.stage] = seconds.get(span.stage, 0.0) + span.seconds
        for stage, total in seconds.items():
            self._set("node_seconds", total, stage=stage)

    def close(self) -> None:
        """No trial runs any more."""
        self.trials(0, 0)
        for left in self._stages.values():
            self._clear("stage", **left)
        self._stages.clear()

    def _cell(self, trial: dict[str, str], cell: CellMetrics) -> None:
        where = trial | {"context": str(cell.context), "concurrency": cell.cell_id.rpartition("_")[2]}
        self._set("output_tps", cell.output_tps, **where)
        self._set("accept_len", cell.accept_len, **where)

    def _set(self, name: str, value: float | None, **tags: str) -> None:
        if value is not None:
            whole = {"sweep": self._sweep} | tags
            self._values[name, tuple(whole.items())] = value
            self._gauges[name].set(value, whole)

    def _clear(self, name: str, **tags: str) -> None:
        """Set a gauge to 0 and leave it to be forgotten."""
        whole = {"sweep": self._sweep} | tags
        self._values.pop((name, tuple(whole.items())), None)
        self._gauges[name].set(0, whole)
