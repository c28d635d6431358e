"""The story of a trial: whatever breaks becomes the record's failure, and the server is stopped."""

from dataclasses import replace

import pytest

from ddtree_tune.core.coding import Attempt, Outcome, Reply
from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.errors import EngineError, FailureClass, GradeError, LoadError
from ddtree_tune.core.flags import CellFlag
from ddtree_tune.core.record import Origin, Proposal, TrialStatus
from ddtree_tune.core.rungs import Pace, PaceCell
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.matrix import RETRIES, Matrix
from ddtree_tune.trial import World, run_trial
from tests.fakes import FakeEngine, FakeGrader, FakeLoader, FakeNode, FakeSink, cell_run

SPEC = """
name: story
space: {budget: [8], topk: [4], window: [none]}
load: {contexts: [60, 512], concurrency: [1, 8], output_tokens: 100, window_s: 1, repeats: 2}
"""
TREE = EngineConfig(Algorithm.TREE, 8, 4, None)


def attempt(problem_id="p1", outcome=Outcome.PASS):
    return Attempt(problem_id, "clamp", outcome, "", "code", Reply("x", None, "stop"), 20, 0.1, 512)


def tell(config=TREE, coding=True, users=(), **faults):
    log = []
    engine = FakeEngine(log, **{k: v for k, v in faults.items() if k not in {"loader", "grader", "spoiled"}})
    sink = FakeSink()
    world = World(
        engine,
        FakeLoader(log, faults.get("loader"), faults.get("spoiled", 0)),
        FakeGrader(log, (attempt(), attempt("p2", Outcome.TRUNCATED)), faults.get("grader")),
        FakeNode(),
        sink,
    )
    proposal = Proposal("0001-abc", config, Origin.SEED, coding, users=users)
    return run_trial(SweepSpec.parse(SPEC, "s"), BuiltinDialect(), proposal, world), log, sink


def test_a_trial_of_some_users_measures_their_cells_alone():
    story, _, _ = tell(coding=False, users=(8,))
    record = list(story)[-1].record
    assert record.status is TrialStatus.COMPLETE
    assert [(cell.metrics.context, cell.metrics.concurrency) for cell in record.cells] == [(60, 8), (512, 8)]
    assert [cell.metrics.repeats for cell in record.cells] == [2, 2]


def test_a_trial_goes_from_launch_to_stop_and_keeps_everything():
    story, log, sink = tell()
    events = list(story)
    record = events[-1].record
    assert [event.stage for event in events] == ["launch", "gate", *["load"] * 8, "coding", "end"]
    assert record.status is TrialStatus.COMPLETE
    assert record.failure is None
    assert log[:2] == ["launch", "ready"]
    assert log[-1] == "stop"
    loads = [line for line in log if line.startswith("load")]
    assert loads[:4] == [line.replace(" 1", " 0") for line in loads[4:]]  # repeats are interleaved over the cells
    assert [cell.metrics.repeats for cell in record.cells] == [2, 2, 2, 2]
    assert record.cells[0].metrics.output_tps == pytest.approx(100, rel=0.01)
    assert record.cells[1].metrics.output_tps == pytest.approx(800, rel=0.01)
    assert record.pass_rate.passed == 1
    assert record.log == "whole log"
    # The clock moves one second per look: what comes in slices is one span.
    assert [(span.stage, span.seconds) for span in record.spans] == [
        ("launch", 2),
        ("gate", 1),
        ("load", 8),
        ("coding", 1),
        ("stop", 1),
    ]
    assert record.seconds == 13
    assert sink.written[-1] == record
    # durable after each cell, and what is written grows
    assert [sum(cell.metrics.repeats for cell in written.cells) for written in sink.written] == [*range(1, 9), 8]


def test_a_start_that_takes_long_is_told_in_steps():
    story, log, _ = tell(phases=["loading weights", "capturing CUDA graphs"])
    events = list(story)
    assert [event.starting.phase for event in events if event.starting] == ["loading weights", "capturing CUDA graphs"]
    assert log.count("launch") == 1
    assert [span.stage for span in events[-1].record.spans].count("launch") == 1


def test_without_coding_no_problem_is_asked():
    story, log, _ = tell(coding=False)
    assert list(story)[-1].record.status is TrialStatus.COMPLETE
    assert "grade" not in log


@pytest.mark.parametrize(
    ("faults", "stage", "failure", "status"),
    [
        (
            {"start_error": EngineError("no memory", FailureClass.STARTUP_OOM)},
            "launch",
            FailureClass.STARTUP_OOM,
            TrialStatus.FAILED,
        ),
        ({"start_error": RuntimeError("a bug")}, "launch", FailureClass.INTERNAL, TrialStatus.FAILED),
        ({"probe_changes": {"served_models": ("old",)}}, "gate", FailureClass.IDENTITY, TrialStatus.REJECTED),
        ({"dies_after": 2}, "load", FailureClass.CRASH_REQUEST, TrialStatus.FAILED),
        ({"dies_after": 8}, "coding", FailureClass.CRASH_REQUEST, TrialStatus.FAILED),
        ({"loader": LoadError("no prompts")}, "load", FailureClass.LOAD, TrialStatus.FAILED),
        ({"loader": EngineError("silence", FailureClass.HANG)}, "load", FailureClass.HANG, TrialStatus.FAILED),
        ({"grader": GradeError("no sandbox")}, "coding", FailureClass.GRADE, TrialStatus.FAILED),
        (
            {"stop_error": EngineError("port held", FailureClass.DIRTY_NODE)},
            "stop",
            FailureClass.DIRTY_NODE,
            TrialStatus.FAILED,
        ),
    ],
)
def test_whatever_breaks_is_a_record_with_its_class_and_stage_and_the_server_is_stopped(faults, stage, failure, status):
    story, log, sink = tell(**faults)
    record = list(story)[-1].record
    assert record.status is status
    assert (record.failure.failure, record.failure.stage) == (failure, stage)
    assert record.failure.reason
    assert log[-1] == "stop"
    assert sink.written[-1] == record


def test_the_first_failure_counts_and_what_follows_does_not_hide_it():
    story, _, _ = tell(
        start_error=EngineError("no memory", FailureClass.STARTUP_OOM),
        stop_error=EngineError("port", FailureClass.DIRTY_NODE),
    )
    record = list(story)[-1].record
    assert record.failure.failure is FailureClass.STARTUP_OOM


@pytest.mark.parametrize("events", [1, 2, 5])
def test_a_story_that_is_closed_early_stops_the_server_and_keeps_what_it_has(events):
    story, log, sink = tell()
    for _ in range(events):
        next(story)
    story.close()
    assert log[-1] == "stop"
    record = sink.written[-1]
    assert record.status is TrialStatus.FAILED
    assert record.failure.failure is FailureClass.INTERRUPTED
    assert len(record.cells) == max(0, events - 2)


def test_a_dead_cell_is_not_measured_as_if_it_were_alive():
    story, _, sink = tell(dies_after=0)
    record = list(story)[-1].record
    assert record.failure.failure is FailureClass.CRASH_REQUEST
    assert record.status is not TrialStatus.COMPLETE
    assert record == replace(sink.written[-1])


def test_a_spoiled_repeat_is_kept_where_the_next_try_breaks():
    calls = []

    class Loader:
        def run(self, endpoint, cell, repeat, check):
            calls.append(cell)
            if len(calls) == 2:
                raise LoadError("the load process is gone")
            return replace(cell_run(cell, repeat), lag_ns=(10**9,) * 200)

    cell = Cell(60, 100, ClosedLoop(1), 1.0)
    matrix = Matrix(Loader(), None, running_cap=None)
    with pytest.raises(LoadError):
        matrix.measure(cell, 0, check=lambda: None)
    (kept,) = matrix.results
    assert CellFlag.CLIENT_LIMITED in kept.metrics.flags
    assert len(kept.runs) == 1


@pytest.mark.parametrize("cells", [0, 1, 3])
def test_what_a_server_did_before_it_died_in_a_cell_is_kept(cells):
    story, _, _ = tell(dies_after=cells)
    record = list(story)[-1].record
    assert record.failure.failure is FailureClass.CRASH_REQUEST
    assert len(record.cells) == cells + 1
    assert all(run.traces for cell in record.cells for run in cell.runs)


def test_a_baseline_without_speculation_passes_the_gate():
    story, _, _ = tell(config=EngineConfig(Algorithm.NONE))
    assert list(story)[-1].record.status is TrialStatus.COMPLETE


def test_a_repeat_that_a_busy_moment_spoiled_is_measured_once_more_and_said_so():
    story, log, _ = tell(spoiled=1)
    record = list(story)[-1].record
    loads = [line for line in log if line.startswith("load")]
    assert len(loads) == 9
    assert loads[0] == loads[1]
    assert [cell.metrics.set_aside for cell in record.cells] == [1, 0, 0, 0]
    assert [len(cell.runs) for cell in record.cells] == [2, 2, 2, 2]
    assert all(cell.metrics.scored for cell in record.cells)


def test_a_cell_that_stays_spoiled_is_kept_with_its_flag():
    story, _, _ = tell(spoiled=99)
    record = list(story)[-1].record
    assert record.status is TrialStatus.COMPLETE
    assert [cell.metrics.set_aside for cell in record.cells] == [2 * RETRIES] * 4
    assert not any(cell.metrics.scored for cell in record.cells)


FIRST = SPEC.replace("repeats: 2}", "repeats: 2, first: {contexts: [512], concurrency: [1]}}")


def paced(score, text=FIRST, **faults):
    """A trial that has to keep up with a setting of this speed-up; it makes 100 tok/s itself, and so does the base."""
    log, sink = [], FakeSink()
    engine = FakeEngine(log, **faults)
    world = World(engine, FakeLoader(log), FakeGrader(log, (attempt(),)), FakeNode(), sink)
    sweep = SweepSpec.parse(text, "s")
    cells = tuple(PaceCell(cell.cell_id, 100.0, 1.0) for cell in sweep.load.first_cells())
    pace = None if score is None else Pace(cells, score, 0.05)
    proposal = Proposal("0001-abc", TREE, Origin.SEARCH, coding=True, pace=pace)
    events = list(run_trial(sweep, BuiltinDialect(), proposal, world))
    return events[-1].record, log, sink


def test_a_trial_that_is_behind_after_its_first_cells_stops_there_and_keeps_them():
    record, log, sink = paced(1.5)
    assert record.status is TrialStatus.STOPPED
    assert record.measured
    assert record.failure is None
    assert [line.rpartition("_")[0] for line in log if line.startswith("load")] == ["load chat_i512_o100"] * 2
    assert "grade" not in log
    assert log[-1] == "stop"
    assert [(cell.metrics.context, cell.metrics.repeats) for cell in record.cells] == [(512, 2)]
    assert [one.cell_id for one in record.texts] == ["chat_i512_o100_c1"]
    assert record.attempts == ()
    assert sink.written[-1] == record


@pytest.mark.parametrize("score", [None, 1.0, 1.05])
def test_a_trial_that_keeps_up_or_has_nothing_to_keep_up_with_runs_whole_first_cells_first(score):
    record, log, _ = paced(score)
    assert record.status is TrialStatus.COMPLETE
    cells = [line.split()[1] for line in log if line.startswith("load")]
    rest = ["chat_i60_o100_c1", "chat_i60_o100_c8", "chat_i512_o100_c8"]
    assert cells == ["chat_i512_o100_c1"] * 2 + rest * 2
    assert "grade" in log


def test_a_stopped_trial_whose_server_does_not_end_has_failed():
    record, _, _ = paced(1.5, stop_error=EngineError("it would not end", FailureClass.DIRTY_NODE))
    assert record.status is TrialStatus.FAILED
    assert record.failure.failure is FailureClass.DIRTY_NODE
