"""Winners of cells and of numbers of users: luck does not displace what was repeated, and a tie is called one."""

import pytest

from ddtree_tune.core.conclusion import Answer, conclude
from ddtree_tune.core.errors import FailureClass
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
