"""Settings of some numbers of users in the finals: measured again in their own cells, and the schedule made of them."""

import math
from dataclasses import replace

import pytest

from ddtree_tune.core.answer import answer_fields
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.launch import winner_script
from ddtree_tune.core.measurements import Basis
from ddtree_tune.core.page.progress import why_partial
from ddtree_tune.core.record import Origin
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.search_spec import FinalSpec
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.winners import Certainty
from ddtree_tune.node.search import Study
from tests.builders import CHAIN, DIALECT, NONE, SPEC, record, spec
from tests.node.test_search import drive

THREE = SPEC.replace("concurrency: [1, 8]", "concurrency: [1, 4, 8]").replace("trials: 8", "trials: 14")
BEST = {1: 32, 4: 16, 8: 4}
"""The best budget by users."""


def swept(**final):
    return spec(THREE, final=FinalSpec(**{"settings": 1, "rounds": 2, **final}))


def gain(config, users):
    if config in {NONE, CHAIN}:
        return 1.0 if config == NONE else 1.1
    return 1.7 - 0.15 * abs(math.log2(config.budget / BEST[users])) - 0.03 * abs(math.log2(config.topk / 4))


def measured(sweep, proposal, noise=0.002):
    wobble = math.exp(noise * math.sin(100.0 * int(proposal.trial_id[:4])))
    return record(sweep, proposal, lambda context, users: 100.0 * users * gain(proposal.config, users) * wobble)


def finals(sweep, outcome=measured):
    asked, told = drive(Study(sweep, DIALECT), sweep, outcome)
    return [one for one in asked if one.origin is Origin.FINAL], told


def test_the_best_of_some_users_is_measured_again_in_their_cells_alone():
    again, told = finals(swept())
    whole = {one.config for one in again if not one.users}
    parts = {one.config: one.users for one in again if one.users}
    assert NONE in whole
    assert CHAIN in whole
    assert len(whole) == 3
    assert {users for of in parts.values() for users in of} <= {1, 4, 8}
    assert parts
    assert not whole & set(parts)
    for one in told:
        cells = {cell.metrics.concurrency for cell in one.cells}
        assert cells == (set(one.proposal.users) or {1, 4, 8})
    best_single = next(iter(whole - {NONE, CHAIN}))
    for config, users in parts.items():
        assert all(gain(config, one) > 1.01 * gain(best_single, one) for one in users)


def test_one_setting_that_is_best_for_several_numbers_of_users_runs_once_a_round():
    again, _ = finals(swept(rounds=3))
    for turn in range(3):
        configs = [one.config for one in again if one.round == turn]
        assert len(configs) == len(set(configs))


def test_every_other_round_is_in_reverse_with_them():
    again, _ = finals(swept())
    first, second = ([(one.config, one.users) for one in again if one.round == turn] for turn in (0, 1))
    assert second == first[::-1]


@pytest.mark.parametrize("final", [{"bands": False}, {"settings": 0}, {"rounds": 0}])
def test_without_them_the_finals_are_whole_trials(final):
    again, _ = finals(swept(**final))
    assert not [one for one in again if one.users]


def test_where_one_setting_is_best_for_all_there_are_none():
    def alike(sweep, proposal):
        return record(sweep, proposal, lambda context, users: 100.0 * users * gain(proposal.config, 4))

    again, _ = finals(swept(), alike)
    assert again
    assert not [one for one in again if one.users]


def test_a_study_rebuilt_from_any_point_asks_the_same_finals():
    sweep = swept()
    asked, told = drive(Study(sweep, DIALECT), sweep, measured)
    assert any(one.users for one in asked)
    for count in range(len(told)):
        assert Study(sweep, DIALECT, told[:count]).ask() == asked[count]
    assert Study(sweep, DIALECT, told).done


def test_the_report_calls_a_sweep_complete_when_it_is_and_not_before():
    sweep = swept()
    asked, told = drive(Study(sweep, DIALECT), sweep, measured)
    assert any(one.users for one in asked)
    assert why_partial(told, sweep) is None
    assert "14 of 14 settings and " in why_partial(told[:-1], sweep)
    again = sum(one.origin is Origin.FINAL for one in asked[:-1])
    assert again > 6
    assert f" and {again} repeated measurements are in." in why_partial(told[:-1], sweep)


def test_the_report_does_so_where_traces_had_a_say_in_who_was_measured_again():
    sweep = swept()
    asked, told = drive(Study(sweep, DIALECT), sweep, measured)
    traced = sweep.model_copy(update={"search": sweep.search.model_copy(update={"trace": ("draft.trace",)})})
    again = {one.config for one in asked if one.origin is Origin.FINAL}
    usual = next(one.config for one in asked if one.origin is Origin.FINAL and not one.users)
    other = next(one.config for one in asked if one.origin is Origin.SEARCH and one.config not in again)
    for at, one in enumerate(told):
        if one.config == usual and one.proposal.origin is Origin.FINAL:
            told[at] = measured(sweep, replace(one.proposal, config=other))
    assert why_partial(told, sweep) is not None
    assert why_partial(told, traced) is None
    for count in range(len(told)):
        assert why_partial(told[:count], traced) is not None


def test_a_final_of_some_users_that_lost_a_cell_is_measured_once_more():
    sweep, spoiled = swept(), []

    def outcome(sweep, proposal):
        if proposal.users and proposal.round == 0 and not spoiled:
            spoiled.append(proposal)
            return record(sweep, proposal, lambda context, users: None)
        return measured(sweep, proposal)

    asked, _ = drive(Study(sweep, DIALECT), sweep, outcome)
    (first,) = spoiled
    assert len([one for one in asked if (one.config, one.round, one.origin) == (first.config, 0, Origin.FINAL)]) == 2


def test_the_schedule_is_made_of_what_was_measured_again_and_its_gain_is_that_of_its_parts():
    sweep = swept(rounds=4)
    _, told = finals(sweep)
    got = conclude(told, sweep)
    bands = {band.concurrency: band for band in got.bands}
    assert all(band.vs_none.basis is Basis.FINALS for band in got.bands)
    assert all(band.certainty is Certainty.SURE for band in got.bands)
    expected = math.prod(gain(bands[users].config, users) for users in (1, 4, 8)) ** (1 / 3)
    whole = got.scheduled
    assert whole.vs_none.ratio == pytest.approx(expected, rel=0.005)
    assert whole.vs_none.interval.low < expected < whole.vs_none.interval.high
    single = math.prod(gain(got.best.config, users) for users in (1, 4, 8)) ** (1 / 3)
    assert whole.vs_best.ratio == pytest.approx(expected / single, rel=0.005)
    assert whole.vs_best.sure
    # A setting that was measured for some users alone has no place among those for all of them.
    parts = {one.config for one in (record.proposal for record in told) if one.users}
    assert parts
    assert not parts & {one.config for one in got.settings}
    assert NO_SPECULATION in {one.config for one in got.settings}


def test_what_the_schedule_gains_is_printed_written_and_given_to_programs():
    sweep = swept()
    _, told = finals(sweep)
    got = conclude(told, sweep)
    page = " ".join(" ".join(answer_lines(got, told, sweep)).split())
    assert "Each number under its own setting: 1." in page
    assert "x the best single setting" in page
    assert "Each number under its own setting: 1." in winner_script(got, told, sweep).replace("\n#", " ")
    fields = answer_fields(got, told, sweep, root="", partial=None)
    assert fields["scheduled"]["x_best"]["ratio"] == got.scheduled.vs_best.ratio
    one = swept(bands=False, settings=0)
    _, once = finals(one)
    assert conclude(once, one).scheduled is None
