"""Shows what goes on: a live view on a terminal, one plain line per event elsewhere, or an event a line as JSON.

What stays is said once; what only is so now is a line of its own where nothing can be overwritten.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ddtree_tune.core.cell_table import cell_fields
from ddtree_tune.core.coding_lines import elsewhere, outcome_text, rate_text
from ddtree_tune.core.coherence import judged
from ddtree_tune.core.objective import BEHIND, leader
from ddtree_tune.core.plan import plan
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.speedup import score_against

if TYPE_CHECKING:
    from ddtree_tune.core.engine import Starting
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.record import Proposal, TrialRecord
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.trial import TrialEvent


@dataclass
class Display:
    """Lines that stay, and what is going on."""

    quiet: bool = False
    """Show nothing."""
    as_json: bool = False
    """A JSON object a line for programs, instead of text."""
    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True), kw_only=True)
    _live: Live | None = field(default=None, init=False)
    _line: str = field(default="", init=False)

    def say(self, line: str, event: str = "said", **fields: Any) -> None:
        """Print a line that stays.

        Args:
            line: for people.
            event: what happened, for programs.
            fields: of what; the line itself where there are none.
        """
        if self.quiet:
            return
        if self.as_json:
            told = {"event": event, "at_utc": _utc(0.0), **(fields or {"text": line})}
            self.console.file.write(json.dumps(told, ensure_ascii=False) + "\n")
        else:
            self.console.print(line, markup=False)
        self.console.file.flush()

    def now(self, line: str, event: str = "said", **fields: Any) -> None:
        """What is going on: part of the live view of a terminal, a line of its own elsewhere."""
        self._line = line
        if self.quiet or self.as_json or not self.console.is_terminal:
            self.say(line, event, **fields)
        elif self._live is None:
            self._live = Live(
                console=self.console,
                get_renderable=self._view,
                refresh_per_second=4,
                transient=True,
                redirect_stderr=False,
            )
            self._live.start()

    def close(self) -> None:
        """End the live view."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _view(self) -> RenderableType:
        """What a terminal shows below the lines that stay."""
        return Spinner("dots", Text(self._line))


@dataclass
class BenchProgress(Display):
    """Follows the cells of one server's measurement."""

    steps: int = 0
    """Cells times repeats."""
    window_s: float = 0.0

    def __post_init__(self) -> None:
        self._done = 0
        self._begun = time.monotonic()
        self.now(f"{self.steps} measurements, at least {self.steps * self.window_s / 60:.1f} min")

    def measured(self, cell: CellMetrics) -> None:
        """A repeat of a cell is done."""
        self._done += 1
        left_s = (time.monotonic() - self._begun) / self._done * (self.steps - self._done)
        line = f"[{self._done:>{len(str(self.steps))}}/{self.steps}] {cell_line(cell)} | {_ends(left_s)}"
        self.say(line)


@dataclass
class _Running:
    """One trial that has a node."""

    name: str
    node: str | None
    """Name of the machine; None until it has said something."""
    doing: str
    since: float
    """When it began to do so."""
    begun: float
    """When it got its node."""


@dataclass
class Progress(Display):
    """Follows the events of a sweep; one instance on the driver."""

    spec: SweepSpec = field(kw_only=True)
    records: list[TrialRecord] = field(default_factory=list)
    """Records of the trials that ended, those of an earlier run included."""

    def __post_init__(self) -> None:
        self._plan = plan(self.spec)
        self._nodes = 1
        self._running: dict[str, _Running] = {}
        self._seconds: list[float] = [record.seconds for record in self.records]
        self._since = time.monotonic()
        self._best = leader(self.records, self.spec)

    def nodes(self, count: int) -> None:
        """So many nodes are up now."""
        self._nodes = count
        end = f", {_ends(self._left_s())}" if count else "; trials wait for one"
        self.say(f"{count} node{'' if count == 1 else 's'} up{end}", "nodes", nodes=count, **self._left())

    def started(self, proposal: Proposal) -> None:
        """A trial has its node."""
        self._doing(proposal, None, "starting", "started", origin=proposal.origin.value, round=proposal.round)

    def happened(self, proposal: Proposal, event: TrialEvent, node: str | None = None) -> None:
        """A trial told an event.

        Args:
            proposal: the trial.
            event: what happened.
            node: name of the machine that it runs on, where that is known.
        """
        if event.record is not None:
            self._ended(proposal, event.record, node)
        elif event.starting is not None:
            self._begins(proposal, node, event.starting)
        elif event.cell is not None:
            self._doing(proposal, node, cell_line(event.cell), "cell", cell=cell_fields(event.cell))
        elif event.ready_s is not None:
            self._doing(proposal, node, f"server ready in {event.ready_s:.1f} s", "ready", ready_s=event.ready_s)
        elif (rate := event.pass_rate) is not None:
            counts = {"passed": rate.passed, "attempted": rate.attempted, "outcomes": dict(rate.outcomes)}
            self._doing(proposal, node, f"passed {outcome_text(rate)} | {rate_text(rate)}", "coding", **counts)
        else:
            self._doing(proposal, node, f"{event.stage} passed", "passed", stage=event.stage)

    def _ended(self, proposal: Proposal, record: TrialRecord, node: str | None) -> None:
        """A trial is over."""
        name = self._name(proposal, node)
        self._running.pop(proposal.trial_id, None)
        self.records.append(record)
        self._seconds.append(record.seconds)
        self._since = time.monotonic()
        self._best = leader(self.records, self.spec)
        known = judged(self.records)[-1]
        score = score_against(known, self.records)
        self.say(
            " | ".join((f"{name} | {_outcome(known, score)} | {record.seconds:.0f} s", *self._standing())),
            "ended",
            **self._fields(proposal, node),
            status=known.status.value,
            x_no_speculation=score,
            failure=known.failure.failure.value if known.failure else None,
            reason=known.failure.reason if known.failure else None,
            passed=record.pass_rate.passed if record.pass_rate else None,
            attempted=record.pass_rate.attempted if record.pass_rate else None,
            seconds=record.seconds,
            node_hours=sum(self._seconds) / 3600,
            best={"setting": self._best.config.label, "x_no_speculation": self._best.speedup} if self._best else None,
            **self._left(),
        )

    def _begins(self, proposal: Proposal, node: str | None, starting: Starting) -> None:
        """A server starts: a line for each thing that it begins, and not for each look at it."""
        before = self._running.get(proposal.trial_id)
        if before is None or not before.doing.startswith(f"{starting.phase} ("):
            spent = f"{starting.seconds:.0f} of at most {starting.deadline_s:.0f} s"
            self._doing(proposal, node, f"{starting.phase} ({spent})", "starting", phase=starting.phase)

    def _doing(self, proposal: Proposal, node: str | None, doing: str, event: str, **fields: Any) -> None:
        """A trial does something new."""
        name, since = self._name(proposal, node), time.monotonic()
        before = self._running.get(proposal.trial_id)
        begun = before.begun if before is not None else since
        self._running[proposal.trial_id] = _Running(self._name(proposal, None), node, doing, since, begun)
        line = f"{name} | {doing} | {_ends(self._left_s())}"
        self.now(line, event, **self._fields(proposal, node), **fields, **self._left())

    def _view(self) -> RenderableType:
        """The trials that run, by node, and how the sweep stands."""
        table = Table.grid(padding=(0, 2))
        for one in sorted(self._now_running(), key=lambda one: (one.node or "", one.name)):
            for_s = f"{time.monotonic() - one.since:.0f} s"
            table.add_row(*map(Text, (one.node or "-", one.name, one.doing, for_s)))
        return Group(table, Text(" | ".join(self._standing())))

    def _now_running(self) -> list[_Running]:
        """A copy at one moment: the live view is drawn by a thread of its own."""
        return list(self._running.values())

    def _standing(self) -> list[str]:
        """How the sweep stands; node time of the trials that run is spent too."""
        spent_s = sum(self._seconds) + sum(time.monotonic() - one.begun for one in self._now_running())
        best = [f"best so far {self._best.config.label} {self._best.speedup:.2f} x"] if self._best else []
        return [*best, f"{spent_s / 3600:.2f} node-hours", _ends(self._left_s())]

    def _name(self, proposal: Proposal, node: str | None) -> str:
        total, done = self._total(), self._measured() + 1
        final = f" final {proposal.round + 1}" if proposal.origin is Origin.FINAL else ""
        where = f" on {node}" if node is not None and self._nodes > 1 else ""
        return f"[{done:>{len(str(total))}}/{total}] {proposal.trial_id[:4]} {proposal.config.label}{final}{where}"

    def _fields(self, proposal: Proposal, node: str | None) -> dict[str, Any]:
        return {"trial": proposal.trial_id, "setting": proposal.config.label, "node": node}

    def _left(self) -> dict[str, Any]:
        """How far the sweep is, and when it ends."""
        left = {"done": self._measured(), "of": self._total()}
        return left | ({"ends_utc": _utc(self._left_s())} if self._nodes else {})

    def _measured(self) -> int:
        """Trials of the plan that ended; one that was measured again counts once."""
        return len({(one.config, one.proposal.origin, one.proposal.round) for one in self.records})

    def _total(self) -> int:
        """Trials of the plan, and those that came to it: settings of some numbers of users in the finals."""
        return max(self._plan.trials + self._plan.finals, self._measured() + len(self._now_running()))

    def _left_s(self) -> float:
        """Until the sweep ends if trials go on as they did since the last one ended."""
        done = len(self._seconds)
        whole = self._total()
        each = sum(self._seconds) / done if done else self._plan.node_s / whole
        left_s = max(0, whole - self._measured()) * each / max(1, self._nodes)
        return max(0.0, left_s - (time.monotonic() - self._since))


def _outcome(record: TrialRecord, score: float | None) -> str:
    """What became of a trial."""
    if record.status is TrialStatus.STOPPED:
        return f"stopped: {BEHIND}"
    if record.status is not TrialStatus.COMPLETE:
        why = f"{record.failure.failure}: {record.failure.reason}" if record.failure else "no reason known"
        return f"{record.status} in {record.failure.stage if record.failure else '?'}: {why}"
    parts = [f"{score:.2f} x no speculation" if score is not None else record.proposal.part or "no score"]
    if record.pass_rate is not None:
        other = elsewhere(record.attempts)
        parts.append(f"passed {outcome_text(record.pass_rate)}" + (f" ({other})" if other else ""))
    return ", ".join(parts)


def _ends(left_s: float) -> str:
    at = datetime.now().astimezone() + timedelta(seconds=left_s)
    return f"ends about {at:%H:%M} ({f'{left_s / 60:.0f} min' if left_s >= 90 else f'{left_s:.0f} s'})"


def _utc(ahead_s: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=ahead_s)).isoformat(timespec="seconds")


def cell_line(cell: CellMetrics) -> str:
    """One cell in stable columns; what is not known is a dash."""
    ttft = f"{1e3 * cell.ttft_s.p50:.0f} ms" if cell.ttft_s.p50 is not None else "-"
    tps = f"{cell.output_tps:.0f}" if cell.output_tps is not None else "-"
    accept = f"{cell.accept_len:.2f}" if cell.accept_len is not None else "-"
    flags = f" [{', '.join(cell.flags)}]" if cell.flags else ""
    return f"i{cell.context} {cell.cell_id.rpartition('_')[2]}: {tps} tok/s, ttft {ttft}, accept {accept}{flags}"
