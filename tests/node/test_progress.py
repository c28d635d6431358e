"""What is shown while a sweep runs: no rate without its outcomes, no speed of garbage."""

import io
import re
from dataclasses import replace

from rich.console import Console

from ddtree_tune.core.coding import pass_rate
from ddtree_tune.core.plan import plan
from ddtree_tune.core.record import CellTexts, Origin
from ddtree_tune.node.progress import Progress
from ddtree_tune.trial import TrialEvent
from tests.builders import NONE, attempts, proposal, record, spec, tree

SWEEP = spec()
PROMPTS = tuple(f"prompt{n}" for n in range(60))


def told(*events):
    """The lines of a job log after events of trials."""
    out = io.StringIO()
    progress = Progress(plan=plan(SWEEP), console=Console(file=out, width=400, highlight=False))
    for of, event in events:
        progress.happened(of, event)
    return out.getvalue().splitlines()


def ended(one):
    return one.proposal, TrialEvent("end", record=one)


def test_a_trial_names_the_outcomes_of_its_coding_evaluation():
    found = attempts(18, truncated=1)
    one = record(SWEEP, proposal(1, NONE, Origin.BASELINE), attempts=found)
    live, line = told((one.proposal, TrialEvent("coding", pass_rate=pass_rate(found))), ended(one))
    assert "passed 18 of 20: 1 truncated, 1 wrong_answer | over all 0.90 (0.70 to 0.97)" in live
    assert "1.00 x no speculation, passed 18 of 20: 1 truncated, 1 wrong_answer | " in line


def test_a_trial_that_passes_another_number_alone_says_so():
    both = [replace(one, concurrency=8) for one in attempts(18)] + [replace(one, concurrency=1) for one in attempts(17)]
    (line,) = told(ended(record(SWEEP, proposal(1, NONE, Origin.BASELINE), attempts=tuple(both))))
    assert "passed 18 of 20: 2 wrong_answer (17/20 at 1)" in line


def test_the_speed_of_garbage_is_not_shown():
    cell_id = SWEEP.load.cells()[0].cell_id
    base = record(SWEEP, proposal(1, NONE, Origin.BASELINE), texts=(CellTexts(cell_id, PROMPTS, ()),))
    fast = record(SWEEP, proposal(2, tree(8)), 450.0, texts=(CellTexts(cell_id, PROMPTS, PROMPTS),))
    _, line = told(ended(base), ended(fast))
    assert "failed in load: degenerate_output: 60 of 60 replies to the same prompts in chat_i60" in line
    assert "x no speculation" not in line


def test_every_event_is_a_line_with_an_end_time_and_nodes_come_and_go():
    out = io.StringIO()
    progress = Progress(plan=plan(SWEEP), console=Console(file=out, width=400, highlight=False))
    one = record(SWEEP, proposal(1, NONE, Origin.BASELINE))
    progress.nodes(0)
    progress.nodes(2)
    progress.started(one.proposal)
    for event in (TrialEvent("launch", ready_s=1.5), TrialEvent("gate"), TrialEvent("load", cell=one.cells[0].metrics)):
        progress.happened(one.proposal, event)
    progress.happened(*ended(one))
    waiting, up, *lines = out.getvalue().splitlines()
    assert waiting == "0 nodes up; trials wait for one"
    assert up.startswith("2 nodes up, ends about")
    assert len(lines) == 5
    assert all(re.search(r"ends about \d\d:\d\d \(\d+ (s|min)\)$", line) for line in [up, *lines])


def test_a_trial_that_is_measured_again_counts_once():
    out = io.StringIO()
    progress = Progress(plan=plan(SWEEP), console=Console(file=out, width=400, highlight=False))
    first, again = (record(SWEEP, proposal(n, NONE, Origin.BASELINE)) for n in (1, 2))
    progress.happened(*ended(first))
    progress.happened(*ended(again))
    progress.started(proposal(3, tree(8)))
    assert [line.partition("/")[0].strip("[ ") for line in out.getvalue().splitlines()] == ["1", "2", "2"]
