"""What is an excess of garbage, and what is chance."""

from dataclasses import replace

import pytest

from ddtree_tune.core.coherence import Excess, cell_texts, judged
from ddtree_tune.core.degenerate import Degeneration
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import CellResult, CellTexts, Origin, TrialStatus
from tests.builders import NONE, attempts, cell, proposal, record, run, spec, tree

SWEEP = spec()


@pytest.mark.parametrize(
    ("compared", "mine", "base", "natural"),
    [
        (5, 1, 0, False),  # one reply alone may be a flipped token
        (5, 2, 0, True),
        (25, 2, 0, True),
        (164, 4, 0, False),  # with 1 % each, 4 of 164 come in one of ten healthy settings
        (164, 6, 0, True),
        (25, 3, 3, False),  # the model loops under both alike
        (25, 5, 1, False),
        (25, 8, 1, True),
        (25, 0, 4, False),
        (0, 0, 0, False),
    ],
)
def test_natural_replies_may_loop_as_often_as_the_baselines_and_by_chance(compared, mine, base, natural):
    assert Excess(compared, mine, base).natural is natural


@pytest.mark.parametrize(
    ("compared", "mine", "base", "under_load"),
    [
        (36, 36, 0, True),
        (36, 10, 0, True),
        (36, 9, 0, False),
        (400, 40, 30, False),
        (400, 60, 20, True),
        (4000, 150, 60, False),  # surely more, and yet too few to make a setting fast
        (0, 0, 0, False),
    ],
)
def test_an_excess_under_load_is_sure_and_large(compared, mine, base, under_load):
    assert Excess(compared, mine, base).under_load is under_load


def with_texts(one, bad, prompts=100):
    names = tuple(f"prompt{n}" for n in range(prompts))
    return replace(one, texts=(CellTexts("chat_i60_o128_c1", names, names[:bad]),))


def test_prompts_that_only_one_of_the_two_was_asked_say_nothing():
    base = with_texts(record(SWEEP, proposal(1, NONE, Origin.BASELINE)), 0, prompts=9)
    mine = with_texts(record(SWEEP, proposal(2, tree(8))), 100)
    assert judged([base, mine]) == (base, mine)
    assert judged([with_texts(base, 0), mine])[1].failure.failure is FailureClass.DEGENERATE_OUTPUT


def test_a_trial_that_broke_and_the_baseline_itself_are_left_as_they_are():
    base = with_texts(record(SWEEP, proposal(1, NONE, Origin.BASELINE)), 100)
    broke = record(SWEEP, proposal(2, tree(8)), failure=FailureClass.CRASH_REQUEST)
    assert judged([base, broke]) == (base, broke)
    assert judged([]) == ()


def test_replies_of_errors_and_of_other_concurrencies_are_not_compared():
    def looping(one, **changes):
        bad = [replace(attempt, degenerate=Degeneration.LOOP, **changes) for attempt in one.attempts]
        return replace(one, attempts=tuple(bad))

    base, mine = record(SWEEP, proposal(1, NONE, Origin.BASELINE)), record(SWEEP, proposal(2, tree(8)))
    assert judged([base, looping(mine)])[1].status is TrialStatus.FAILED
    assert judged([base, looping(mine, concurrency=4)])[1].status is TrialStatus.COMPLETE
    failed = replace(mine.attempts[0].reply, error="closed")
    assert judged([base, looping(mine, reply=failed)])[1].status is TrialStatus.COMPLETE
    assert len(attempts(18)) == 20


def test_the_replies_of_a_cell_are_told_by_their_prompts():
    whole = run()
    loop = replace(whole.traces[1], text="and " * 100)
    found = cell_texts(CellResult(cell(60, 1, 80.0), (replace(whole, traces=(loop, *whole.traces[2:])),)))
    assert found.prompts == (whole.traces[1].prompt_sha, whole.traces[2].prompt_sha)
    assert found.degenerate == (whole.traces[1].prompt_sha,)
