"""Fast garbage never wins: whole trials of a server that says one word at three times the speed."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from ddtree_tune.core.coding_spec import CodingSpec
from ddtree_tune.core.coherence import judged
from ddtree_tune.core.conclusion import Answer, conclude
from ddtree_tune.core.engine import Algorithm, Endpoint
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.frontier import frontier
from ddtree_tune.core.launch import winner_script
from ddtree_tune.core.objective import Verdict
from ddtree_tune.core.record import Origin, Proposal, TrialStatus
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.speedup import score_against
from ddtree_tune.core.trace import CellRun, SpecCounters, Window
from ddtree_tune.core.workload import Cell
from ddtree_tune.node.grader import NodeGrader
from ddtree_tune.node.search import Study
from ddtree_tune.trial import World, run_trial
from tests.builders import CHAIN, DIALECT, NONE, tree
from tests.fakes import FakeEngine, FakeNode, FakeSink, S, cell_run
from tests.node.chat_server import ChatServer
from tests.node.test_grader import GOOD, TESTS

SPEC = """
name: garbage
space: {budget: [8, 16, 32], topk: [4], window: [none]}
load: {contexts: [60, 512], concurrency: [4, 8], output_tokens: 10, window_s: 1}
search: {trials: 4, final: {settings: 2, rounds: 2}}
"""
SWEEP = SweepSpec.parse(SPEC, "garbage")
AND = "and " * 100
PROSE = "The function goes over the words of a text and counts how often each of them occurs in it, in one pass. "
HONEST, BROKEN = tree(8), tree(16)
SPEED = {NONE: 100, CHAIN: 120, HONEST: 150, BROKEN: 450}


@dataclass
class Talking:
    """Load at a known speed, with replies to prompts that are the same for every setting."""

    tokens_per_s: int
    says: Callable[[Cell, int], str]
    """The text of a reply, by its cell and its place in a slot."""
    spec: SpecCounters | None = field(default_factory=lambda: SpecCounters(10, (0, 1, 1, 8)))

    def run(self, endpoint, cell, repeat, check):
        """See ``ports.Loader``: one second, in which every slot asks one question after the other."""
        (one, *_) = cell_run(cell, repeat, cell.output_tokens, self.spec).traces
        each = self.tokens_per_s // cell.output_tokens
        traces = []
        for slot, i in product(range(cell.concurrency), range(each)):
            sent, end = S + i * S // each, S + (i + 1) * S // each - 1000
            name = f"{cell.cell_id}-{repeat}-{slot}-{i}"
            ends = tuple(sent + (n + 1) * (end - sent) // 10 for n in range(10))
            times = {"sent_ns": sent, "first_byte_ns": sent + 1000, "chunk_ns": ends, "end_ns": end}
            traces.append(replace(one, request_id=name, prompt_sha=name, text=self.says(cell, i), **times))
        return CellRun(cell, repeat, Window(S, 2 * S), tuple(traces), (1000,) * 20)


@dataclass
class Silent:
    """A grader that the trial does not ask."""


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "six.jsonl"
    lines = [{"id": f"p{n}", "entry_point": "f", "prompt": f"p{n}", "tests": TESTS} for n in range(6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def trial(proposal, *, says, replies=None, problems=None):
    """One whole trial; ``replies`` is what the server says to a problem."""
    config = proposal.config
    counters = {} if config.algorithm is not Algorithm.NONE else {"spec": None}
    loader, sink = Talking(SPEED[config], says, **counters), FakeSink()
    if replies is None:
        list(run_trial(SWEEP, DIALECT, proposal, World(FakeEngine(), loader, Silent(), FakeNode(), sink)))
        return sink.written[-1]
    with ChatServer(lambda prompt, _: ({"content": replies(prompt)}, "stop")).running() as server:
        coding = CodingSpec(problems=problems, concurrency=2)
        grader = NodeGrader(coding, served=2, seed=0, stall_s=30)

        class Here:
            """The grader, pointed at the server."""

            def run(self, endpoint, check):
                return grader.run(Endpoint(server.base_url, "m"))

        list(run_trial(SWEEP, DIALECT, proposal, World(FakeEngine(), loader, Here(), FakeNode(), sink)))
    return sink.written[-1]


def origin(config):
    return Origin.SEARCH if config.algorithm is Algorithm.TREE else Origin.BASELINE


def prose(cell, n):
    return f"{n}. {PROSE}"


def sweep_of(load, *, replies=None, problems=None):
    """The search and its finals; ``load`` and ``replies`` are what the broken setting says."""
    records = []
    for n, config in enumerate(SPEED, 1):
        proposal = Proposal(f"{n:04d}-{config.config_id}", config, origin(config), coding=replies is not None)
        broken = config == BROKEN
        answers = None if replies is None else (replies if broken else lambda _: GOOD)
        records.append(trial(proposal, says=load if broken else prose, replies=answers, problems=problems))
    for n, config in enumerate([*SPEED, *SPEED], 10):
        proposal = Proposal(
            f"{n:04d}-{config.config_id}", config, Origin.FINAL, coding=False, round=(n - 10) // len(SPEED)
        )
        records.append(trial(proposal, says=load if config == BROKEN else prose))
    return records


def test_the_garbage_is_faster_in_every_cell_and_would_win_if_it_were_text(problems):
    records = sweep_of(prose)
    assert all(record.status is TrialStatus.COMPLETE for record in records)
    assert score_against(records[3], records) == pytest.approx(4.5, rel=0.01)
    assert all(cell.metrics.scored and cell.metrics.accept_len > 3.5 for cell in records[3].cells)
    assert conclude(records, SWEEP).best.config == BROKEN


@pytest.mark.parametrize(
    ("load", "coded", "where"),
    [
        (lambda *_: AND, False, "40 of 40 replies to the same prompts in chat_i60_o10_c4"),
        (lambda *_: AND, True, "6 of 7 natural replies"),
        (prose, True, "6 of 7 natural replies"),
        (lambda cell, n: AND if cell.context == 512 else prose(cell, n), False, "40 of 40 replies to the same prompts"),
        (lambda cell, n: prose(cell, n) if n else AND, False, "24 of 240 replies to the same prompts over all cells"),
    ],
)
def test_garbage_is_not_chosen_and_its_row_says_why(load, coded, where, problems):
    records = sweep_of(load, replies=(lambda _: AND) if coded else None, problems=problems)
    found = conclude(records, SWEEP)
    assert found.answer is Answer.FASTER
    assert found.best.config == HONEST
    assert {cell.config for cell in found.cells} == {HONEST}
    row = next(row for row in found.rows if row.record.config == BROKEN)
    assert (row.vs_none, row.record.failure.failure) == (None, FailureClass.DEGENERATE_OUTPUT)
    assert row.why.startswith("degenerate_output: ")
    assert where in row.why
    assert "no speculation's are not" in row.why
    page = "\n".join(answer_lines(found, records, SWEEP))
    assert "failed: degenerate_output" in page
    assert "0004 16/4/none: degenerate_output: " in " ".join(page.split())
    assert "--budget 16" not in (winner_script(found, records, SWEEP) or "")
    assert BROKEN not in {point.config for point in frontier(records)}
    # What is kept is what was seen: the verdict follows from it.
    assert records[3].status is TrialStatus.COMPLETE


def test_the_search_learns_that_garbage_is_infeasible(problems):
    study = Study(SWEEP, DIALECT)
    finals = set()
    while (asked := study.ask()) is not None:
        SPEED.setdefault(asked.config, 130)
        proposal = replace(asked, coding=False)
        record = trial(proposal, says=(lambda *_: AND) if asked.config == BROKEN else prose)
        study.tell(replace(record, proposal=asked))
        if asked.origin is Origin.FINAL:
            finals.add(asked.config)
    seen = {slot.config: one.verdict for slot, one in study._agenda.observations() if slot.origin is not Origin.FINAL}
    assert seen[BROKEN] is Verdict.INFEASIBLE
    assert seen[HONEST] is Verdict.MEASURED
    assert HONEST in finals
    assert BROKEN not in finals


def test_a_model_that_loops_by_itself_is_no_fault_of_the_setting(problems):
    """Behind the natural end the model loops under every setting: nothing is excluded."""

    def loops(cell, n):
        return AND if n % 3 == 0 else prose(cell, n)

    records = []
    for n, config in enumerate(SPEED, 1):
        proposal = Proposal(f"{n:04d}-{config.config_id}", config, origin(config), coding=False)
        records.append(trial(proposal, says=loops))
    assert judged(records) == tuple(records)
    assert conclude(records, SWEEP).best.config == BROKEN


def test_without_the_baseline_nothing_is_judged(problems):
    record = trial(Proposal("0001-x", BROKEN, Origin.SEARCH, coding=False), says=lambda *_: AND)
    assert judged([record]) == (record,)
    assert [len(one.prompts) for one in record.texts] == [180, 360, 180, 360]
    assert record.texts[0].degenerate == record.texts[0].prompts
