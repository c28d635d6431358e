"""The time of a step is what decoding alone takes, or it is not known."""

from dataclasses import replace

import pytest

from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION, PLAIN_CHAIN
from ddtree_tune.core.steps import prefill_seconds, step_points, step_seconds
from tests.builders import tree
from tests.engines import PREFILL_S, SHAPES, measured_cell, step_of, trial


@pytest.mark.parametrize(("context", "users"), SHAPES)
@pytest.mark.parametrize(("width", "accept_len"), [(1, 1.0), (9, 4.2), (33, 6.5)])
def test_a_step_is_what_decoding_takes_without_the_prompts(context, users, width, accept_len):
    cell = measured_cell(context, users, width, accept_len)
    found = step_seconds(cell, PREFILL_S[context], speculates=width > 1)
    assert found == pytest.approx(step_of(width, users))


def test_a_prompt_costs_what_it_takes_with_the_fewest_others():
    cells = [measured_cell(context, users, 9, 4.0) for context, users in reversed(SHAPES)]
    assert prefill_seconds(cells) == pytest.approx(PREFILL_S)
    assert prefill_seconds([replace(cells[0], in_flight_mean=None)]) == {}


@pytest.mark.parametrize("missing", ["accept_len", "output_tps", "in_flight_mean"])
def test_a_cell_that_lacks_a_number_has_no_step_time(missing):
    cell = replace(measured_cell(60, 1, 9, 4.0), **{missing: None})
    assert step_seconds(cell, 0.01, speculates=True) is None


def test_an_engine_that_only_reads_prompts_has_no_step_time():
    assert step_seconds(measured_cell(60, 1, 9, 4.0), 100.0, speculates=True) is None


def test_complete_trials_give_points():
    def accept_len(_):
        return 4.0

    trials = [trial(1, NO_SPECULATION, 1, lambda _: 1.0), trial(2, PLAIN_CHAIN, 16, accept_len)]
    trials += [trial(3, tree(8), 9, accept_len), trial(4, tree(32), 33, accept_len, status=TrialStatus.REJECTED)]
    found = step_points(trials)
    assert sorted({point.width for point in found}) == [1, 9, 16]
    assert len(found) == 3 * len(SHAPES)
