"""Shows a sweep while it runs: a live line on a terminal, one plain line per event elsewhere."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.console import Console

from ddtree_tune.core.coding_lines import elsewhere, outcome_text, rate_text
from ddtree_tune.core.coherence import judged
from ddtree_tune.core.objective import BEHIND
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.speedup import score_against

if TYPE_CHECKING:
    from rich.status import Status

    from ddtree_tune.core.engine import Starting
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.plan import Plan
    from ddtree_tune.core.record import Proposal, TrialRecord
    from ddtree_tune.trial import TrialEvent


@dataclass
class Display:
    """Lines that stay, and one that says what is going on."""

    quiet: bool = False
    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True), kw_only=True)
    _live: Status | None = field(default=None, init=False)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if not self.quiet:
            self.console.print(line, markup=False)

    def now(self, line: str) -> None:
        """What is going on: the live line of a terminal, a line of its own elsewhere."""
        if self.quiet:
            return
        if not self.console.is_terminal:
            self.console.print(line, markup=False)
            sys.stdout.flush()
        elif self._live is None:
            self._live = self.console.status(line)
            self._live.start()
        else:
            self._live.update(line)

    def close(self) -> None:
        """End the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


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
class Progress(Display):
    """Follows the events of a sweep; one instance on the driver."""

    plan: Plan = field(kw_only=True)
    records: list[TrialRecord] = field(default_factory=list)
    """Records of the trials that ended, those of an earlier run included."""

    def __post_init__(self) -> None:
        self._nodes = 1
        self._phases: dict[str, str] = {}
        self._seconds: list[float] = [record.seconds for record in self.records]
        self._since = time.monotonic()

    def nodes(self, count: int) -> None:
        """So many nodes are up now."""
        self._nodes = count
        end = f", {self._end()}" if count else "; trials wait for one"
        self.say(f"{count} node{'' if count == 1 else 's'} up{end}")

    def started(self, proposal: Proposal) -> None:
        """A trial has its node."""
        self.now(f"{self._name(proposal)} | starting | {self._end()}")

    def happened(self, proposal: Proposal, event: TrialEvent) -> None:
        """A trial told an event."""
        name = self._name(proposal)
        if event.record is not None:
            self.records.append(event.record)
            self._seconds.append(event.record.seconds)
            self._since = time.monotonic()
            record = judged(self.records)[-1]
            self.say(f"{name} | {self._outcome(record)} | {event.record.seconds:.0f} s | {self._end()}")
        elif event.starting is not None:
            self._begins(proposal, name, event.starting)
        else:
            self.now(f"{name} | {_step(event)} | {self._end()}")

    def _begins(self, proposal: Proposal, name: str, starting: Starting) -> None:
        """A server starts: a line for each thing that it begins, and not for each look at it."""
        if self._phases.get(proposal.trial_id) != starting.phase:
            self._phases[proposal.trial_id] = starting.phase
            spent = f"{starting.seconds:.0f} of at most {starting.deadline_s:.0f} s"
            self.now(f"{name} | {starting.phase} ({spent}) | {self._end()}")

    def _name(self, proposal: Proposal) -> str:
        total = self.plan.trials + self.plan.finals
        done = min(self._measured() + 1, total)
        final = f" final {proposal.round + 1}" if proposal.origin is Origin.FINAL else ""
        return f"[{done:>{len(str(total))}}/{total}] {proposal.trial_id[:4]} {proposal.config.label}{final}"

    def _measured(self) -> int:
        """Trials of the plan that ended; one that was measured again counts once."""
        return len({(one.config, one.proposal.origin, one.proposal.round) for one in self.records})

    def _outcome(self, record: TrialRecord) -> str:
        if record.status is TrialStatus.STOPPED:
            return f"stopped: {BEHIND}"
        if record.status is not TrialStatus.COMPLETE:
            why = f"{record.failure.failure}: {record.failure.reason}" if record.failure else "no reason known"
            return f"{record.status} in {record.failure.stage if record.failure else '?'}: {why}"
        score = score_against(record, self.records)
        parts = [f"{score:.2f} x no speculation" if score is not None else "no score"]
        if record.pass_rate is not None:
            other = elsewhere(record.attempts)
            parts.append(f"passed {outcome_text(record.pass_rate)}" + (f" ({other})" if other else ""))
        return ", ".join(parts)

    def _end(self) -> str:
        """When the sweep ends if trials go on as they did since the last one ended."""
        done = len(self._seconds)
        whole = self.plan.trials + self.plan.finals
        each = sum(self._seconds) / done if done else self.plan.node_s / whole
        left_s = max(0, whole - self._measured()) * each / max(1, self._nodes)
        return _ends(max(0.0, left_s - (time.monotonic() - self._since)))


def _step(event: TrialEvent) -> str:
    """One event before a trial's last."""
    if event.cell is not None:
        return cell_line(event.cell)
    if event.ready_s is not None:
        return f"server ready in {event.ready_s:.1f} s"
    if event.pass_rate is not None:
        return f"passed {outcome_text(event.pass_rate)} | {rate_text(event.pass_rate)}"
    return f"{event.stage} passed"


def _ends(left_s: float) -> str:
    at = datetime.now().astimezone() + timedelta(seconds=left_s)
    return f"ends about {at:%H:%M} ({f'{left_s / 60:.0f} min' if left_s >= 90 else f'{left_s:.0f} s'})"


def cell_line(cell: CellMetrics) -> str:
    """One cell in stable columns; what is not known is a dash."""
    ttft = f"{1e3 * cell.ttft_s.p50:.0f} ms" if cell.ttft_s.p50 is not None else "-"
    tps = f"{cell.output_tps:.0f}" if cell.output_tps is not None else "-"
    accept = f"{cell.accept_len:.2f}" if cell.accept_len is not None else "-"
    flags = f" [{', '.join(cell.flags)}]" if cell.flags else ""
    return f"i{cell.context} {cell.cell_id.rpartition('_')[2]}: {tps} tok/s, ttft {ttft}, accept {accept}{flags}"
