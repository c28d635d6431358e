"""What a trial leaves behind, whatever became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtree_tune.core.coding import Attempt, PassRate
    from ddtree_tune.core.engine import Difference, EffectiveConfig, EngineConfig, GraphUse, LaunchPlan
    from ddtree_tune.core.errors import FailureClass
    from ddtree_tune.core.gate import GateVerdict
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.rungs import Pace
    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell


class Origin(StrEnum):
    """Why a configuration is tried."""

    BASELINE = "baseline"
    SEED = "seed"
    """Hand-picked in the spec."""
    SEARCH = "search"
    FINAL = "final"
    """One of the best, or a baseline, measured again for the last word."""
    BENCH = "bench"
    """A server that was there, measured by itself."""


class TrialStatus(StrEnum):
    """What became of a trial."""

    COMPLETE = "complete"
    STOPPED = "stopped"
    """Behind in the cells that come first, so the rest was not paid for."""
    REJECTED = "rejected"
    """The gate said no."""
    FAILED = "failed"
    """Something broke."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One trial to run."""

    trial_id: str
    """Sorts in the order of asking, as in ``0012-3fa9c1d20b7e``."""
    config: EngineConfig
    origin: Origin
    coding: bool
    """Whether the coding evaluation runs."""
    round: int = 0
    """Which repetition of the finals."""
    reference: str | None = None
    """The baseline's greedy answer to the gate's question, once it is known."""
    pace: Pace | None = None
    """What its first cells must reach; None where it runs whole."""
    users: tuple[int, ...] = ()
    """Numbers of requests in flight whose cells are measured, in the finals; every cell when empty."""

    @property
    def part(self) -> str | None:
        """What is measured, in words; None if it is everything."""
        return f"measured with {' and '.join(map(str, self.users))} in flight alone" if self.users else None

    def measures(self, cell: Cell) -> bool:
        """Whether a cell of the matrix is measured."""
        return not self.users or cell.concurrency in self.users


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trial did not complete."""

    failure: FailureClass
    stage: str
    """launch, gate, load, coding or stop."""
    reason: str
    """One sentence."""
    log_tail: str
    """The engine's last lines."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Where numbers come from: the machine and the software of one node."""

    hostname: str
    machine: str
    """Processor model and count."""
    memory_gib: float | None
    gpus: tuple[str, ...]
    driver: str | None
    os: str
    python: str
    packages: tuple[tuple[str, str], ...]
    git_commit: str | None
    git_dirty: bool | None
    load_average: float | None
    """One-minute load when the fingerprint was taken."""
    blas: str | None = None


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell of one trial: its metrics and the raw requests they came from."""

    metrics: CellMetrics
    runs: tuple[CellRun, ...]


@dataclass(frozen=True, slots=True)
class CellTexts:
    """Which replies of one cell are degenerate, by their prompts."""

    cell_id: str
    prompts: tuple[str, ...]
    """Hashes of the prompts that were answered."""
    degenerate: tuple[str, ...]
    """Those whose reply is what a broken kernel writes."""


@dataclass(frozen=True, slots=True)
class Span:
    """How long one stage of a trial took."""

    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """Everything about one trial. A failed trial is a row, not a traceback."""

    sweep: str
    proposal: Proposal
    status: TrialStatus
    started_utc: str
    node: str
    spans: tuple[Span, ...]
    plan: LaunchPlan | None = None
    effective: EffectiveConfig | None = None
    differences: tuple[Difference, ...] = ()
    gate: GateVerdict | None = None
    answer: str | None = None
    """The greedy answer to the gate's question, reasoning first."""
    door: str | None = None
    """Where the load was sent, through nothing in between; None if none was."""
    cells: tuple[CellResult, ...] = ()
    texts: tuple[CellTexts, ...] = ()
    """Of each cell once all are measured."""
    attempts: tuple[Attempt, ...] = ()
    pass_rate: PassRate | None = None
    failure: Failure | None = None
    fingerprint: Fingerprint | None = None
    graphs: GraphUse | None = None
    """How the decode steps ran that the engine's log tells of; None where it tells of none."""
    log: str = ""
    """The engine's log, its end if it is long."""

    @property
    def trial_id(self) -> str:
        """Names the trial's files."""
        return self.proposal.trial_id

    @property
    def config(self) -> EngineConfig:
        """What was asked."""
        return self.proposal.config

    @property
    def measured(self) -> bool:
        """Whether nothing broke: the trial ran to its end, or as far as it had to."""
        return self.status in {TrialStatus.COMPLETE, TrialStatus.STOPPED}

    @property
    def seconds(self) -> float:
        """Node time of the trial."""
        return sum(span.seconds for span in self.spans)
