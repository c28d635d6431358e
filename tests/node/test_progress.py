"""What is shown while a sweep runs: no rate without its outcomes, no speed of garbage."""

import io
import json
import re
from dataclasses import replace
from datetime import datetime

import pytest
from rich.console import Console

from ddtree_tune.core.coding import pass_rate
from ddtree_tune.core.engine import Starting
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.objective import leader
from ddtree_tune.core.record import CellTexts, Origin
from ddtree_tune.node.progress import Progress
from ddtree_tune.trial import TrialEvent
from tests.builders import NONE, attempts, proposal, record, spec, tree
from tests.core.test_conclusion import search

SWEEP = spec()
PROMPTS = tuple(f"prompt{n}" for n in range(60))


def told(*events):
    """The lines of a job log after events of trials."""
    out = io.StringIO()
    progress = Progress(spec=SWEEP, console=Console(file=out, width=400, highlight=False))
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
    progress = Progress(spec=SWEEP, console=Console(file=out, width=400, highlight=False))
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
    progress = Progress(spec=SWEEP, console=Console(file=out, width=400, highlight=False))
    first, again = (record(SWEEP, proposal(n, NONE, Origin.BASELINE)) for n in (1, 2))
    progress.happened(*ended(first))
    progress.happened(*ended(again))
    progress.started(proposal(3, tree(8)))
    assert [line.partition("/")[0].strip("[ ") for line in out.getvalue().splitlines()] == ["1", "2", "2"]


def shown(progress):
    """What a terminal shows below the lines that stay, as text."""
    console = Console(file=io.StringIO(), width=160, force_terminal=True, color_system=None)
    console.print(progress._view())
    return console.file.getvalue().splitlines()


def test_a_terminal_shows_what_runs_on_which_node_and_how_the_sweep_stands():
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=True, color_system=None)
    progress = Progress(spec=SWEEP, console=console)
    base = record(SWEEP, proposal(1, NONE, Origin.BASELINE))
    first, second = record(SWEEP, proposal(2, tree(8)), 150.0), record(SWEEP, proposal(3, tree(16)))
    progress.nodes(2)
    progress.happened(*ended(base))
    for one in (first, second):
        progress.started(one.proposal)
    progress.happened(first.proposal, TrialEvent("load", cell=first.cells[0].metrics), "node-b")
    progress.happened(second.proposal, TrialEvent("gate"), "node-a")
    above, below, standing = shown(progress)
    assert re.fullmatch(r"node-a  \[ 2/16\] 0003 16/4/none  gate passed +0 s *", above)
    assert re.fullmatch(r"node-b  \[ 2/16\] 0002 8/4/none +i60 c1: 150 tok/s, ttft 100 ms, accept - +0 s *", below)
    assert standing.startswith("best so far no speculation 1.00 x | 0.01 node-hours | ends about ")
    progress.happened(*ended(first), "node-b")
    assert [line.split()[0] for line in shown(progress)] == ["node-a", "best"]
    assert shown(progress)[1].startswith("best so far 8/4/none 1.50 x | 0.01 node-hours | ends about ")
    progress.close()
    assert "0002 8/4/none on node-b | 1.50 x no speculation, passed 18" in out.getvalue()


def test_a_line_names_the_node_where_there_are_several():
    out = io.StringIO()
    progress = Progress(spec=SWEEP, console=Console(file=out, width=400, highlight=False))
    asked = proposal(1, NONE, Origin.BASELINE)
    for count in (1, 2):
        progress.nodes(count)
        progress.happened(asked, TrialEvent("gate"), "node-a")
    _, alone, _, beside = out.getvalue().splitlines()
    assert "0001 no speculation | gate passed" in alone
    assert "0001 no speculation on node-a | gate passed" in beside


def told_as_json():
    """Every kind of event of a sweep, as a program reads them."""
    out = io.StringIO()
    progress = Progress(spec=SWEEP, as_json=True, console=Console(file=out, width=20, force_terminal=True))
    one = record(SWEEP, proposal(1, NONE, Origin.BASELINE))
    broken = record(SWEEP, proposal(2, tree(8)), failure=FailureClass.STARTUP_OOM)
    progress.say("small: a sweep", "begun", sweep="small", results="/r")
    progress.nodes(2)
    progress.say("a node is clean again")
    progress.started(one.proposal)
    starting = Starting("loading weights", 2.0, 60.0)
    for event in (
        TrialEvent("launch", starting=starting),
        TrialEvent("launch", starting=replace(starting, seconds=5.0)),
        TrialEvent("launch", ready_s=1.5),
        TrialEvent("gate"),
        TrialEvent("load", cell=one.cells[0].metrics),
        TrialEvent("coding", pass_rate=one.pass_rate),
    ):
        progress.happened(one.proposal, event, "node-a")
    progress.happened(*ended(one), "node-a")
    progress.happened(*ended(broken), "node-a")
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_programs_get_an_object_a_line_for_every_event():
    events = told_as_json()
    assert [one["event"] for one in events] == [
        *("begun", "nodes", "said", "started", "starting", "ready", "passed", "cell", "coding", "ended", "ended"),
    ]
    cell, good, bad = events[7], events[9], events[10]
    assert cell["cell"]["output_tps"] == 100.0
    assert (cell["trial"], cell["setting"], cell["node"]) == (good["trial"], "no speculation", "node-a")
    assert good["best"] == {"setting": "no speculation", "x_no_speculation": 1.0}
    assert (good["passed"], good["attempted"], good["node_hours"]) == (18, 20, 22.5 / 3600)
    assert (bad["status"], bad["failure"], bad["reason"]) == ("failed", "startup_oom", "it did not work")
    assert bad["x_no_speculation"] is bad["passed"] is None
    assert (bad["done"], bad["of"]) == (2, 16)
    assert all(datetime.fromisoformat(one["at_utc"]).tzinfo for one in events)


def test_quiet_says_nothing_at_all():
    for as_json in (False, True):
        out = io.StringIO()
        progress = Progress(spec=SWEEP, quiet=True, as_json=as_json, console=Console(file=out, force_terminal=True))
        progress.nodes(1)
        progress.happened(*ended(record(SWEEP, proposal(1, NONE, Origin.BASELINE))))
        progress.close()
        assert not out.getvalue()


def test_the_leader_is_the_best_that_may_be_recommended():
    trials = search()
    unfit = record(SWEEP, proposal(50, tree(32)), 1000.0, attempts=attempts(2))
    late = replace(unfit, proposal=proposal(51, tree(4), Origin.FINAL), pass_rate=None, attempts=())
    found = leader([*trials, unfit, late], SWEEP)
    assert found.config == trials[2].config
    assert found.speedup == pytest.approx(1.5)
    assert leader([], SWEEP) is None
    assert leader(trials[1:], SWEEP) is None
