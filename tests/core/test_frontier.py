"""The frontier: nothing on it is beaten at both, everything off it is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ddtree_tune.core.frontier import frontier, undominated
from ddtree_tune.core.record import CellResult, TrialStatus
from tests.builders import CHAIN, NONE, cell, proposal, record, spec, tree

SWEEP = spec()


def trial(n, config, *cells, **changes):
    return record(SWEEP, proposal(n, config), cells=tuple(CellResult(one, ()) for one in cells), **changes)


def shaped(context, concurrency, tps, user_tps, **changes):
    return replace(cell(context, concurrency, tps), user_tps=user_tps, **changes)


def test_a_point_beaten_at_both_is_off_the_frontier_of_its_context_only():
    records = [
        trial(1, NONE, shaped(60, 1, 100, 100), shaped(60, 8, 500, 62)),
        trial(2, tree(8), shaped(60, 1, 150, 150), shaped(60, 8, 450, 56), shaped(512, 8, 90, 11)),
        trial(3, CHAIN, shaped(60, 8, 480, 60)),
    ]
    got = {(one.config, one.context, one.concurrency): one.on_frontier for one in frontier(records)}
    assert got == {
        (NONE, 60, 1): False,
        (NONE, 60, 8): True,
        (tree(8), 60, 1): True,
        (tree(8), 60, 8): False,
        (CHAIN, 60, 8): False,
        (tree(8), 512, 8): True,
    }


def test_trials_of_one_setting_are_one_point_with_the_widest_interval():
    records = [trial(n, tree(8), shaped(60, 1, tps, tps)) for n, tps in ((1, 100.0), (2, 110.0), (3, 130.0))]
    (point,) = frontier(records)
    assert (point.output_tps, point.user_tps, point.trials) == (110.0, 110.0, 3)
    assert (point.low_tps, point.high_tps) == (pytest.approx(98.0), pytest.approx(132.6))


def test_what_was_not_scored_is_not_shown():
    records = [
        trial(1, tree(8), shaped(60, 1, 100, 100, flags=("capped",)), shaped(60, 8, 100, None)),
        trial(2, tree(4), shaped(60, 1, 100, 100), status=TrialStatus.FAILED),
    ]
    assert frontier(records) == ()


@given(arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(0, 4).map(float)))
def test_undominated_is_the_definition(values):
    kept = undominated(values)
    for i, row in enumerate(values):
        beaten = any((other >= row).all() and (other > row).any() for other in values)
        assert kept[i] == (not beaten)
    assert kept.any()
