"""The answer: from the finals where there are finals, ties to the smaller, and never a guess."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core.conclusion import Answer, conclude
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.measurements import Basis
from ddtree_tune.core.record import CellResult, Origin
from ddtree_tune.core.winners import Certainty
from tests.builders import CHAIN, NONE, attempts, matrix, proposal, record, spec, tree

SWEEP = spec()
BIG, SMALL = tree(16, 4, 64), tree(8, 4, 64)
SPEED = {NONE: 1.0, CHAIN: 1.2, BIG: 1.5, SMALL: 1.4}


def origin(config):
    return Origin.BASELINE if config.algorithm is not Algorithm.TREE else Origin.SEARCH


def search(speed=SPEED, **changes):
    """One trial of each configuration; speeds are over no speculation, 100 tok/s a user."""
    return [
        record(SWEEP, proposal(n, config, origin(config)), per_cell(speed[config]), **changes)
        for n, config in enumerate(speed, 1)
    ]


def per_cell(factor, noise=0.0, rng=None):
    def tps(context, concurrency):
        value = factor(context, concurrency) if callable(factor) else factor
        return 100.0 * concurrency * value * math.exp(noise * rng.standard_normal() if rng else 0.0)

    return tps


def times(factor, drift):
    return lambda context, concurrency: drift * (factor(context, concurrency) if callable(factor) else factor)


def finals(speed=SPEED, rounds=2, noise=0.003, drift=(1.0, 1.0, 1.0), seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for turn in range(rounds):
        order = list(speed) if turn % 2 == 0 else list(speed)[::-1]
        for config in order:
            n = 50 + len(found)
            tps = per_cell(times(speed[config], drift[turn]), noise, rng)
            found.append(record(SWEEP, proposal(n, config, Origin.FINAL, turn), tps))
    return found


def test_the_quoted_speed_up_is_the_finals_not_the_luckier_search():
    lucky = search({**SPEED, BIG: 1.9})
    got = conclude([*lucky, *finals()], SWEEP)
    assert got.answer is Answer.FASTER
    assert got.best.config == BIG
    assert got.best.vs_none.basis is Basis.FINALS
    assert got.best.vs_none.ratio == pytest.approx(1.5, rel=0.01)
    assert got.best.vs_chain.ratio == pytest.approx(1.25, rel=0.01)
    assert got.best.vs_none.interval.low < 1.5 < got.best.vs_none.interval.high
    assert got.best.vs_none.rounds == 2


def test_without_finals_the_answer_is_marked_as_not_repeated():
    got = conclude(search(), SWEEP)
    assert got.answer is Answer.UNREPEATED
    assert got.best.config == BIG
    assert got.best.vs_none.ratio == pytest.approx(1.5)
    assert got.best.vs_none.interval is None
    assert got.best.vs_none.basis is Basis.SEARCH


def test_one_round_of_finals_is_not_enough_for_an_interval():
    assert conclude([*search(), *finals(rounds=1)], SWEEP).answer is Answer.UNREPEATED


def test_drift_between_rounds_does_not_move_the_answer():
    steady, drifting = (
        conclude([*search(), *finals(drift=drift, noise=1e-6)], SWEEP) for drift in ((1.0, 1.0), (1.0, 0.6))
    )
    assert drifting.best.vs_none.ratio == pytest.approx(steady.best.vs_none.ratio, rel=1e-4)
    assert drifting.answer is Answer.FASTER


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_that_is_not_told_apart_from_the_chain_is_inconclusive(seed):
    close = {**SPEED, BIG: 1.21, SMALL: 1.0}
    got = conclude([*search(close), *finals(close, noise=0.08, seed=seed)], SWEEP)
    assert got.answer is Answer.INCONCLUSIVE
    assert got.best_tree.config == BIG
    assert got.best_tree.vs_chain.sure is False
    assert got.best.config in {BIG, CHAIN}


def test_ties_within_one_percent_go_to_the_smaller_budget():
    tied = {**SPEED, BIG: 1.5, SMALL: 1.488}
    assert conclude([*search(tied), *finals(tied, noise=1e-6)], SWEEP).best.config == SMALL
    apart = {**SPEED, BIG: 1.5, SMALL: 1.48}
    assert conclude([*search(apart), *finals(apart, noise=1e-6)], SWEEP).best.config == BIG


def test_where_no_tree_beats_the_chain_the_chain_is_the_answer():
    slow = {**SPEED, BIG: 1.205, SMALL: 1.1}
    got = conclude([*search(slow), *finals(slow, noise=1e-6)], SWEEP)
    assert got.answer is Answer.CHAIN
    assert got.best.config == CHAIN
    assert got.best_tree.config == BIG


def test_where_nothing_beats_no_speculation_it_is_turned_off():
    slow = {NONE: 1.0, CHAIN: 0.9, BIG: 0.95, SMALL: 0.8}
    got = conclude([*search(slow), *finals(slow)], SWEEP)
    assert got.answer is Answer.OFF
    assert got.best.config == NONE
    assert {cell.config for cell in got.cells} == {NONE}
    assert all(cell.certainty is Certainty.SURE for cell in got.cells)


def test_without_the_plain_baseline_there_is_no_answer():
    lost = record(SWEEP, proposal(1, NONE, Origin.BASELINE), failure=FailureClass.STARTUP_CRASH)
    got = conclude([lost, *search()[1:]], SWEEP)
    assert got.answer is Answer.NOTHING
    assert got.best is None
    assert "no speculation" in got.why
    assert all(cell.config is None for cell in got.cells)
    assert [row.vs_none for row in got.rows] == [None] * 4


def test_no_records_and_no_finished_setting_give_no_answer():
    assert conclude([], SWEEP).answer is Answer.NOTHING
    only = conclude(search()[:2], SWEEP)
    assert only.answer is Answer.NOTHING
    assert "no setting" in only.why


def test_a_setting_that_broke_once_is_not_recommended():
    broke = record(SWEEP, proposal(90, BIG, Origin.FINAL, 1), failure=FailureClass.OOM_RUNTIME)
    kept = [one for one in finals() if not (one.config == BIG and one.proposal.round == 1)]
    got = conclude([*search(), *kept, broke], SWEEP)
    assert got.best.config == SMALL
    assert not next(one for one in got.settings if one.config == BIG).feasible
    lost = replace(broke, failure=replace(broke.failure, failure=FailureClass.NODE_LOST))
    assert conclude([*search(), *kept, lost], SWEEP).best.config == BIG


def test_a_setting_that_solves_fewer_problems_is_not_recommended():
    worse = [one if one.config != BIG else replace_attempts(one, 10) for one in search()]
    got = conclude([*worse, *finals()], SWEEP)
    assert got.best.config == SMALL
    assert got.best.coding.rate.passed == 18
    assert got.best.coding.paired.discordant == 0


def replace_attempts(one, passed):
    again = record(SWEEP, one.proposal, attempts=attempts(passed))
    return replace(one, attempts=again.attempts, pass_rate=again.pass_rate)


def test_problems_are_compared_one_by_one_with_the_baselines():
    trials = search()
    mixed = attempts(19)[::-1]  # the last one passed and the first failed, by problem id
    trials[2] = replace(trials[2], attempts=mixed)
    got = conclude([*trials, *finals()], SWEEP)
    best = got.best
    assert best.config == BIG
    assert best.coding.rate.passed == 19
    assert (best.coding.paired.only_first, best.coding.paired.only_second) == (0, 1)


def users(one, eight):
    return lambda context, concurrency: one if concurrency == 1 else eight


def test_each_cell_has_its_own_winner():
    by_load = {NONE: 1.0, CHAIN: users(1.2, 1.1), BIG: users(2.0, 0.7), SMALL: users(1.5, 1.3)}
    got = conclude([*search(by_load), *finals(by_load)], SWEEP)
    assert [(one.context, one.concurrency, one.config) for one in got.cells] == [
        (60, 1, BIG),
        (60, 8, SMALL),
        (512, 1, BIG),
        (512, 8, SMALL),
    ]
    assert all(one.certainty is Certainty.SURE for one in got.cells)
    assert got.cells[0].vs_none.ratio == pytest.approx(2.0, rel=0.02)
    assert got.cells[0].vs_chain.ratio == pytest.approx(2.0 / 1.2, rel=0.02)
    assert got.cells[1].output_tps == pytest.approx(800 * 1.3, rel=0.02)


def test_a_cell_is_turned_off_where_no_speculation_wins():
    by_load = {NONE: 1.0, CHAIN: users(1.2, 0.9), BIG: users(2.0, 0.7), SMALL: users(1.9, 0.8)}
    got = conclude([*search(by_load), *finals(by_load)], SWEEP)
    assert [one.config for one in got.cells] == [BIG, NONE, BIG, NONE]
    assert got.answer is Answer.FASTER
    assert got.best.config == SMALL  # over the whole matrix: (1.9 * 0.8) ** 0.5 beats (2.0 * 0.7) ** 0.5


def test_a_cell_that_noise_blurs_is_a_tie_with_its_rival():
    by_load = {NONE: 1.0, CHAIN: 1.2, BIG: 1.26, SMALL: 0.9}
    got = conclude([*search(by_load), *finals(by_load, noise=0.08, seed=4)], SWEEP)
    ties = [one for one in got.cells if one.certainty is Certainty.TIE]
    assert ties
    assert all(one.rival is not None and one.rival != one.config for one in ties)


def test_one_lucky_search_measurement_does_not_displace_a_repeated_winner():
    other = tree(32, 4, 64)
    slightly = [*search({**SPEED, other: 1.505}), *finals(noise=0.01)]
    clearly = [*search({**SPEED, other: 2.5}), *finals(noise=0.01)]
    assert {one.config for one in conclude(slightly, SWEEP).cells} == {BIG}
    displaced = conclude(clearly, SWEEP).cells
    assert {one.config for one in displaced} == {other}
    assert all(one.certainty is Certainty.ONCE and one.vs_none.basis is Basis.SEARCH for one in displaced)


def test_what_is_launched_for_a_number_of_users_was_measured_again():
    other = tree(32, 4, 64)
    got = conclude([*search({**SPEED, other: 2.5}), *finals(noise=0.01)], SWEEP)
    assert {one.config for one in got.cells} == {other}
    assert {one.config for one in got.bands} == {BIG}
    assert all(one.vs_none.basis is not Basis.SEARCH for one in got.bands)
    assert {one.config for one in conclude(search({**SPEED, other: 2.5}), SWEEP).bands} == {other}


def test_a_flagged_cell_of_the_baseline_is_left_out_of_every_score_and_named():
    def flag(one):
        cells = list(one.cells)
        cells[3] = CellResult(replace(cells[3].metrics, flags=("capped",)), ())
        return replace(one, cells=tuple(cells))

    trials = [flag(one) if one.config == NONE else one for one in [*search(), *finals()]]
    got = conclude(trials, SWEEP)
    assert got.answer is Answer.FASTER
    assert len(got.compared) == 3
    assert got.cells[3].config is None
    assert got.cells[2].config == BIG


def test_a_setting_cannot_win_by_losing_a_cell():
    def lose(one):
        return replace(one, cells=one.cells[:3])

    by_load = {**SPEED, BIG: lambda c, u: 0.5 if (c, u) == (512, 8) else 1.6}
    trials = [lose(one) if one.config == BIG else one for one in [*search(by_load), *finals(by_load)]]
    got = conclude(trials, SWEEP)
    assert got.best.config == SMALL
    row = next(row for row in got.rows if row.record.config == BIG)
    assert row.vs_none is None
    assert row.why == "not scored: chat_i512_o128_c8 (not measured)"


def test_every_trial_has_a_row_with_its_reason():
    oom = record(SWEEP, proposal(9, tree(32)), failure=FailureClass.STARTUP_OOM)
    got = conclude([oom, *search(), *finals()], SWEEP)
    assert [row.record.trial_id for row in got.rows] == sorted(row.record.trial_id for row in got.rows)
    assert len(got.rows) == 1 + 4 + 8
    failed = next(row for row in got.rows if row.record.config == tree(32))
    assert failed.why == "startup_oom: it did not work"
    assert failed.vs_none is None


def test_a_final_is_compared_with_its_own_rounds_baseline():
    got = conclude([*search(), *finals(drift=(1.0, 0.5), noise=0.0)], SWEEP)
    second = [row for row in got.rows if row.record.proposal.round == 1 and row.record.config == BIG]
    assert [row.vs_none for row in second] == [pytest.approx(1.5)]


def test_acceptance_is_the_mean_of_the_cells_that_report_it():
    cells = matrix(SWEEP, 150.0, accept_len=3.5)
    cells = (CellResult(replace(cells[0].metrics, accept_len=None), ()), *cells[1:])
    trials = [one if one.config != BIG else replace(one, cells=cells) for one in search()]
    rows = conclude(trials, SWEEP).rows
    assert [row.accept_len for row in rows] == [None, None, 3.5, None]


def test_the_order_of_the_records_does_not_matter():
    trials = [*search(), *finals()]
    assert conclude(trials[::-1], SWEEP) == conclude(trials, SWEEP)


def test_a_baseline_that_only_the_finals_measured_must_be_beaten_too():
    close = {**SPEED, BIG: 1.22, SMALL: 1.0}
    lost = record(SWEEP, proposal(2, CHAIN, Origin.BASELINE), failure=FailureClass.NODE_LOST)
    trials = [lost if one.config == CHAIN else one for one in search(close)]
    got = conclude([*trials, *finals(close, noise=0.05, seed=3)], SWEEP)
    assert got.best_tree.vs_chain.sure is False
    assert got.answer is Answer.INCONCLUSIVE or got.best.config == CHAIN
