"""Winners of cells and of numbers of users: luck does not displace what was repeated, and a tie is called one."""

from dataclasses import replace

import pytest

from ddtree_tune.core.conclusion import Answer, conclude
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.winners import Certainty
from tests.builders import CHAIN, NONE, record, tree
from tests.core.test_conclusion import BIG, SMALL, SPEED, SWEEP, finals, search, users


def test_where_no_finalist_can_be_recommended_the_schedule_follows_the_answer():
    other = tree(32, 4, 64)
    broke = [
        record(SWEEP, one.proposal, failure=FailureClass.OOM_RUNTIME) if one.config in {BIG, SMALL} else one
        for one in finals()
    ]
    got = conclude([*search({**SPEED, other: 1.4}), *broke], SWEEP)
    assert got.answer is Answer.UNREPEATED
    assert got.best.config == other
    assert {(one.config, one.certainty) for one in got.bands} == {(other, Certainty.ONCE)}


@pytest.mark.parametrize("gain", [1.012, 1.02])
def test_luck_of_the_search_does_not_displace_no_speculation_either(gain):
    other = tree(32, 4, 64)
    slow = {NONE: 1.0, CHAIN: 0.9, BIG: 0.95, SMALL: 0.8}
    got = conclude([*search({**slow, other: gain}), *finals(slow, noise=0.02, seed=1)], SWEEP)
    assert {one.config for one in got.cells} == {NONE}
    clearly = conclude([*search({**slow, other: 1.5}), *finals(slow, noise=0.02, seed=1)], SWEEP)
    assert {one.config for one in clearly.cells} == {other}


def test_what_is_surely_faster_by_less_than_a_tie_is_a_tie():
    by_load = {NONE: 1.0, CHAIN: 0.9, BIG: users(1.5, 1.006), SMALL: users(1.4, 1.005)}
    got = conclude([*search(by_load), *finals(by_load, noise=1e-6)], SWEEP)
    off = [one for one in (*got.cells, *got.bands) if one.config == NONE]
    assert len(off) == 3
    assert {(one.certainty, one.rival) for one in off} == {(Certainty.TIE, BIG)}


def accepting(one, accept_len):
    return tuple(CellResult(replace(cell.metrics, accept_len=accept_len), ()) for cell in one.cells)


def part(one, users):
    """A final as if it had been measured with one number of users alone."""
    cells = tuple(cell for cell in one.cells if cell.metrics.concurrency == users)
    return replace(one, proposal=replace(one.proposal, users=(users,)), cells=cells)


def test_a_setting_of_some_users_that_was_measured_for_all_of_them_later_is_compared_with_all():
    early = [part(one, 1) if one.config == BIG else one for one in finals()]
    late = [
        replace(one, proposal=replace(one.proposal, trial_id=f"02{one.proposal.trial_id[2:]}", round=turn + 2))
        for one in finals(seed=1)
        for turn in [one.proposal.round]
    ]
    assert conclude([*search(), *early], SWEEP).best.config == SMALL
    early = [replace(one, cells=accepting(one, 9.0)) for one in early]
    whole = [replace(one, cells=accepting(one, 3.0)) for one in (*search(), *late)]
    got = conclude([*whole, *early], SWEEP)
    assert got.best.config == BIG
    assert got.best.accept_len == pytest.approx(3.0)
    assert got.best.vs_none.rounds == 2
    assert got.best.vs_none.interval.low < 1.5 < got.best.vs_none.interval.high
