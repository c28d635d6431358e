"""Ports of known truth for the story of a trial: nothing is launched, every call is noted."""

from dataclasses import dataclass, field, replace

from ddtree_tune.core.engine import Endpoint, EngineHandle, EngineState, LaunchPlan, Starting
from ddtree_tune.core.record import Fingerprint
from ddtree_tune.core.trace import CellRun, Phase, SpecCounters, Window
from tests.core.test_engine import server_info
from tests.core.test_gate import PROBE, trace

S = 1_000_000_000
FINGERPRINT = Fingerprint("host", "cpu x 2", 8.0, (), None, "linux", "3.11", (), None, None, 0.1)


def cell_run(cell, repeat, tokens_per_s=100, spec=SpecCounters(10, (2, 3, 5))):
    """One second of a closed loop in which every slot streams ``tokens_per_s`` in ten chunks."""
    traces = []
    for slot in range(cell.concurrency):
        chunk_ns = tuple(S + i * S // 10 for i in range(10))
        chunk_tokens = tuple((i + 1) * tokens_per_s // 10 for i in range(10))
        traces.append(
            replace(
                trace(spec=spec),
                request_id=f"{repeat}-{slot}",
                phase=Phase.WINDOW,
                sent_ns=S - S // 20,
                first_byte_ns=S,
                chunk_ns=chunk_ns,
                chunk_tokens=chunk_tokens,
                end_ns=2 * S - S // 20 - 1,
                prompt_tokens=cell.context,
                completion_tokens=chunk_tokens[-1],
            )
        )
    return CellRun(
        cell, repeat, Window(S - S // 20, 2 * S - S // 20), tuple(traces), (1000,) * 20, "2026-01-01T00:00:00Z"
    )


@dataclass
class FakeEngine:
    """An engine that does what it was asked, unless told otherwise."""

    log: list = field(default_factory=list)
    start_error: Exception | None = None
    phases: list = field(default_factory=list)
    probe_changes: dict = field(default_factory=dict)
    dies_after: int | None = None
    stop_error: Exception | None = None

    def launch(self, config):
        self.log.append("launch")
        self.config = config

    def ready(self, wait_s):
        self.log.append("ready")
        if self.start_error:
            raise self.start_error
        if self.phases:
            return Starting(self.phases.pop(0), 1.0, 60.0)
        plan = LaunchPlan(("python", "-m", "x"), (), "127.0.0.1", 4000, "trial-1-abc")
        return EngineHandle(Endpoint(plan.base_url, plan.served_model_name), plan, 1, "node-1", 0.5)

    def probe(self, handle):
        self.log.append("probe")
        info = server_info(self.config)
        none = self.config.algorithm == "none"
        answers = (trace(spec=None),) * 2 if none else PROBE.answers
        crowd = (trace(spec=None),) * 8 if none else PROBE.crowd
        return replace(PROBE, server_info=info, answers=answers, crowd=crowd, **self.probe_changes)

    def state(self):
        self.log.append("state")
        if self.dies_after is not None and self.log.count("state") > self.dies_after:
            return EngineState(
                alive=False, exit_code=-9, failure="crash_request", reason="killed", log_tail="last words"
            )
        return EngineState(alive=True, log_tail="last words")

    def stop(self):
        self.log.append("stop")
        if self.stop_error:
            raise self.stop_error
        return "whole log"


@dataclass
class FakeLoader:
    """Load of known truth."""

    log: list
    error: Exception | None = None
    spoiled: int = 0

    def run(self, handle, cell, repeat, check):
        self.log.append(f"load {cell.cell_id} {repeat}")
        if self.error:
            raise self.error
        run = cell_run(cell, repeat)
        if self.spoiled:
            self.spoiled -= 1
            run = replace(run, lag_ns=(200_000_000,) * 100)
        return run


@dataclass
class FakeGrader:
    """Attempts of known truth."""

    log: list
    attempts: tuple = ()
    error: Exception | None = None

    def run(self, handle, check):
        self.log.append("grade")
        if self.error:
            raise self.error
        return self.attempts


@dataclass
class FakeNode:
    """A clock that moves one second per look."""

    seconds: float = 0.0

    def fingerprint(self):
        return FINGERPRINT

    def now_s(self):
        self.seconds += 1
        return self.seconds

    def utc(self):
        return "2026-01-01T00:00:00+00:00"


@dataclass
class FakeSink:
    """Keeps every version of every record."""

    written: list = field(default_factory=list)

    def write(self, record):
        self.written.append(record)
