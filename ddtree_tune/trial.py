"""The story of one trial: launch, read back, gate, load, coding, record, stop.

It is told over ports and does nothing itself. It comes in steps, one event each, so that whoever
runs it can show progress, be interrupted between steps and still have the server stopped and the
record kept. Whatever breaks becomes the record's failure; nothing escapes.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import pass_rate
from ddtree_tune.core.coherence import cell_texts
from ddtree_tune.core.dialects import overridden
from ddtree_tune.core.engine import Starting, differences
from ddtree_tune.core.errors import EngineError, FailureClass, GradeError, LoadError, TuneError
from ddtree_tune.core.gate import judge
from ddtree_tune.core.record import Failure, Span, TrialRecord, TrialStatus
from ddtree_tune.core.rungs import behind
from ddtree_tune.matrix import Matrix

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ddtree_tune.core.coding import Attempt, PassRate
    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.engine import Difference, EffectiveConfig, EngineHandle, GraphUse
    from ddtree_tune.core.gate import GateVerdict
    from ddtree_tune.core.metrics import CellMetrics
    from ddtree_tune.core.record import CellResult, CellTexts, Fingerprint, Proposal
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.ports import Engine, Gpus, Grader, Loader, Node, Sink


LOOK_S = 3.0
"""Between two events of a server that starts: Tune ends a trial in order only between its steps, within 10 s."""
REASON_CHARS = 600
"""A reason is a sentence; whoever wants the traceback reads the log."""


@dataclass(frozen=True, slots=True)
class World:
    """What a trial acts through."""

    engine: Engine
    loader: Loader
    grader: Grader | None
    """None where nothing is graded."""
    node: Node
    sink: Sink
    gpus: Gpus | None = None
    """None where there are none to be seen."""


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """One thing that happened; exactly one carries the record, and nothing but a quarantine follows it."""

    stage: str
    starting: Starting | None = None
    ready_s: float | None = None
    cell: CellMetrics | None = None
    pass_rate: PassRate | None = None
    record: TrialRecord | None = None
    quarantine: str | None = None
    """Why the node is held though its trial is over."""


class _RejectedError(Exception):
    """The gate said no."""


class _BehindError(Exception):
    """The first cells said that this is not the best setting."""


@dataclass
class _Book:
    """What is known of the trial so far."""

    sweep: str
    proposal: Proposal
    node: Node
    started_utc: str
    status: TrialStatus = TrialStatus.FAILED
    stage: str = "launch"
    spans: list[Span] = field(default_factory=list)
    handle: EngineHandle | None = None
    effective: EffectiveConfig | None = None
    different: tuple[Difference, ...] = ()
    verdict: GateVerdict | None = None
    answer: str | None = None
    door: str | None = None
    cells: tuple[CellResult, ...] = ()
    texts: tuple[CellTexts, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    failure: Failure | None = None
    fingerprint: Fingerprint | None = None
    graphs: GraphUse | None = None
    log: str = ""

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the block's time to a stage."""
        self.stage = stage
        start = self.node.now_s()
        try:
            yield
        finally:
            self.took(stage, self.node.now_s() - start)

    def took(self, stage: str, seconds: float) -> None:
        """Count time to a stage, as one span while it is the same one."""
        if self.spans and self.spans[-1].stage == stage:
            seconds += self.spans.pop().seconds
        self.spans.append(Span(stage, seconds))

    def fail(self, failure: FailureClass, reason: str, log_tail: str) -> None:
        """Keep the first failure; what breaks afterwards is its consequence."""
        if self.failure is None:
            sentence = " ".join(reason.split())
            self.failure = Failure(failure, self.stage, sentence[:REASON_CHARS], log_tail)

    def record(self) -> TrialRecord:
        """The record as far as it goes."""
        return TrialRecord(
            sweep=self.sweep,
            proposal=self.proposal,
            status=self.status,
            started_utc=self.started_utc,
            node=self.handle.node_id if self.handle else "",
            spans=tuple(self.spans),
            plan=self.handle.plan if self.handle else None,
            effective=self.effective,
            differences=self.different,
            gate=self.verdict,
            answer=self.answer,
            door=self.door,
            cells=self.cells,
            texts=self.texts,
            attempts=self.attempts,
            pass_rate=pass_rate(self.attempts) if self.attempts else None,
            failure=self.failure,
            fingerprint=self.fingerprint,
            graphs=self.graphs,
            log=self.log,
        )


def run_trial(spec: SweepSpec, dialect: Dialect, proposal: Proposal, world: World) -> Generator[TrialEvent, None, None]:
    """Run one trial step by step.

    Args:
        spec: the sweep.
        dialect: how its engine spells the knobs.
        proposal: the configuration and why it is tried.
        world: what the trial acts through.

    Yields:
        An event per step; the last one carries the record, which the sink has by then. Closing the
        iterator early stops the server and keeps the record as interrupted.
    """
    book = _Book(spec.name, proposal, world.node, world.node.utc())
    book.fingerprint = world.node.fingerprint()
    try:
        yield from _steps(spec, dialect, book, world)
        book.status = TrialStatus.COMPLETE
    except GeneratorExit:
        book.fail(FailureClass.INTERRUPTED, "the sweep was stopped while the trial ran", "")
        raise
    except _RejectedError:
        book.status = TrialStatus.REJECTED
    except _BehindError:
        book.status = TrialStatus.STOPPED
    except EngineError as error:
        book.fail(error.failure, error.message, _log_tail(world.engine))
    except TuneError as error:
        kind = {LoadError: FailureClass.LOAD, GradeError: FailureClass.GRADE}.get(type(error), FailureClass.INTERNAL)
        book.fail(kind, str(error), _log_tail(world.engine))
    except Exception as error:  # noqa: BLE001 - a defect of ours must end one trial, not the sweep
        book.fail(FailureClass.INTERNAL, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        _stop(book, world)
        world.sink.write(book.record())
    yield TrialEvent("end", record=book.record())


def _steps(spec: SweepSpec, dialect: Dialect, book: _Book, world: World) -> Iterator[TrialEvent]:
    config = dialect.canonical(book.proposal.config)
    with book.timed("launch"):
        if world.gpus:
            world.gpus.refuse_taken()
        world.engine.launch(config)
    while True:
        with book.timed("launch"):
            found = world.engine.ready(LOOK_S)
        if not isinstance(found, Starting):
            break
        yield TrialEvent("launch", starting=found)
    handle = book.handle = found
    yield TrialEvent("launch", ready_s=handle.ready_s)

    with book.timed("gate"):
        probe = world.engine.probe(handle)
        book.effective = dialect.read_back(probe.server_info, config)
        book.different = (*differences(config, book.effective), *overridden(handle.plan.argv, probe.server_info))
        book.answer = probe.answers[0].reasoning + probe.answers[0].text if probe.answers else None
        book.verdict = judge(
            spec.gate,
            config,
            book.effective,
            book.different,
            probe,
            nonce=handle.endpoint.served_model_name,
            max_concurrency=spec.max_concurrency,
            reference=book.proposal.reference,
        )
    if (check := book.verdict.failed) is not None and check.failure is not None:
        book.fail(check.failure, f"{check.name}: {check.detail}", _log_tail(world.engine))
        raise _RejectedError
    yield TrialEvent("gate")

    endpoint = probe.door or handle.endpoint
    book.door = endpoint.door
    matrix = Matrix(world.loader, endpoint, running_cap=book.effective.max_running_requests, gpus=world.gpus)

    def alive() -> None:
        book.graphs = _still_alive(world.engine)

    first = spec.load.repeats * len(spec.load.first_cells())
    wanted = ((cell, repeat) for cell, repeat in matrix.order(spec.load) if book.proposal.measures(cell))
    for count, (cell, repeat) in enumerate(wanted, 1):
        try:
            with book.timed("load"):
                result = matrix.measure(cell, repeat, check=alive)
        finally:
            book.cells = matrix.results
        world.sink.write(book.record())
        yield TrialEvent("load", cell=result.metrics)
        if count == first and book.proposal.pace and behind((one.metrics for one in book.cells), book.proposal.pace):
            book.texts = tuple(map(cell_texts, book.cells))
            raise _BehindError
    book.texts = tuple(map(cell_texts, book.cells))

    if book.proposal.coding and world.grader:
        with book.timed("coding"):
            book.attempts = tuple(world.grader.run(endpoint, alive))
        alive()
        yield TrialEvent("coding", pass_rate=pass_rate(book.attempts))


def _still_alive(engine: Engine) -> GraphUse | None:
    """Raise EngineError if the server ended: what was measured meanwhile is not to be trusted.

    Returns:
        How its decode steps ran so far, where its log tells.
    """
    state = engine.state()
    if not state.alive:
        failure = FailureClass(state.failure) if state.failure else FailureClass.CRASH_REQUEST
        raise EngineError(state.reason or f"the server ended with exit code {state.exit_code}", failure)
    return state.graphs if state.graphs and (state.graphs.graphed or state.graphs.eager) else None


def _log_tail(engine: Engine) -> str:
    """The engine's last lines; empty when even that cannot be had."""
    try:
        return engine.state().log_tail
    except Exception:  # noqa: BLE001 - the failure that is being recorded matters more
        return ""


def _stop(book: _Book, world: World) -> None:
    """End the server; what does not end or lets go of memory is the node's fault, recorded as such."""
    try:
        with book.timed("stop"):
            book.log = world.engine.stop()
            if world.gpus:
                world.gpus.await_released()
    except TuneError as error:
        book.fail(FailureClass.DIRTY_NODE, str(error), "")
        book.status = TrialStatus.FAILED
    except Exception as error:  # noqa: BLE001 - see run_trial
        book.fail(FailureClass.INTERNAL, f"{type(error).__name__}: {error}", traceback.format_exc())
        book.status = TrialStatus.FAILED
