"""The answer in sentences: what is said of baselines, and of which cells it is said."""

from dataclasses import replace

import pytest

from ddtree_tune.core.answer import answer_fields
from ddtree_tune.core.conclusion import Answer, conclude
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.headline import headline
from ddtree_tune.core.launch import winner_script
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.winners import Certainty
from tests.builders import CHAIN, NONE, SPEC, record, spec
from tests.core.test_conclusion import BIG, SMALL, SPEED, SWEEP, finals, search, users
from tests.core.test_goals import with_ttft

LIMITED = spec(
    SPEC.replace(
        "concurrency: [1, 8]}", "concurrency: [1, 8], min_requests: 20}\nobjective: {slos: [{ttft_p95_s: 0.3}]}"
    )
)


def test_where_every_setting_breaks_a_limit_in_one_cell_programs_are_given_nothing_to_launch():
    trials = [with_ttft(one, lambda _, users: 0.4 if users == 8 else 0.2) for one in [*search(), *finals()]]
    got = conclude(trials, LIMITED)
    assert "no searched setting that was compared keeps every latency limit" in headline(got)
    fields = answer_fields(got, trials, LIMITED, root="", partial=None)
    assert (fields["best"], fields["launch"], fields["schedule"]) == (None, None, [])
    assert winner_script(got, trials, LIMITED) is None


@pytest.mark.parametrize("late", [{CHAIN}, {NONE}, {NONE, CHAIN}])
def test_a_baseline_that_breaks_a_limit_need_not_be_beaten(late):
    speed = {NONE: 1.0, CHAIN: 1.3, BIG: 1.2, SMALL: 1.1} if CHAIN in late else {**SPEED, BIG: 1.3, SMALL: 1.25}
    trials = [with_ttft(one, 0.4 if one.config in late else 0.2) for one in [*search(speed), *finals(speed)]]
    got = conclude(trials, LIMITED)
    assert got.best.config == BIG
    assert got.answer is Answer.FASTER
    said = headline(got)
    assert ("The plain chain breaks a latency limit (objective.slos)." in said) == (CHAIN in late)
    assert ("No speculation breaks a latency limit (objective.slos)." in said) == (NONE in late)
    assert conclude(trials[:4], LIMITED).answer is Answer.UNREPEATED


@pytest.mark.parametrize(
    ("speed", "noise", "seed", "said"),
    [
        ({**SPEED, BIG: 1.0, SMALL: 0.9}, 1e-6, 0, "The plain chain is 1.20 (1.20 to 1.20) x no speculation."),
        ({**SPEED, CHAIN: 0.98, BIG: 0.7, SMALL: 0.6}, 0.05, 1, "Turn speculation off: no tree is faster"),
        ({**SPEED, CHAIN: 0.98, BIG: 0.7, SMALL: 0.6}, 0.05, 1, "The plain chain is 0."),
        ({**SPEED, CHAIN: 0.9, BIG: 0.7, SMALL: 0.6}, 1e-6, 0, "Turn speculation off: nothing is faster"),
    ],
)
def test_a_baseline_that_is_recommended_is_told_beside_the_other_baselines(speed, noise, seed, said):
    assert said in headline(conclude([*search(speed), *finals(speed, noise=noise, seed=seed)], SWEEP))


def test_a_cell_of_an_open_loop_where_speculation_is_turned_off_is_named():
    got = conclude([*search(), *finals()], SWEEP)
    cell = replace(got.cells[0], cells=("chat_i60_o128_r2",), concurrency=None, config=NONE, certainty=Certainty.SURE)
    assert headline(replace(got, cells=(cell, *got.cells[1:]))).endswith("Turn speculation off at: chat_i60_o128_r2.")


def test_cells_that_do_not_count_are_not_told_as_lost_and_not_as_part_of_the_schedule():
    by_load = {NONE: 1.0, CHAIN: users(1.2, 1.1), BIG: users(2.0, 0.7), SMALL: users(1.5, 1.3)}
    trials = [*search(by_load), *finals(by_load)]
    weights = SWEEP.objective.model_validate({"weights": [{"concurrency": 8, "weight": 0}]})
    one = SWEEP.model_copy(update={"objective": weights})
    page = "\n".join(answer_lines(conclude(trials, one), trials, one))
    assert "x is the geometric mean over 2 cells\n" in page
    assert "over the cells that count." in " ".join(page.split())

    def flag(trial):
        first = CellResult(replace(trial.cells[0].metrics, flags=("capped",)), ())
        return replace(trial, cells=(first, *trial.cells[1:]))

    lost = [flag(trial) if trial.config == NONE else trial for trial in trials]
    page = "\n".join(answer_lines(conclude(lost, one), lost, one))
    assert "over 1 cells; no speculation lacks 1 others\n" in page


def test_a_chain_that_broke_in_the_finals_need_not_be_beaten_and_is_told():
    speed = {**SPEED, CHAIN: 1.6}
    broke = [
        record(SWEEP, one.proposal, failure=FailureClass.OOM_RUNTIME)
        if one.config == CHAIN and one.proposal.round
        else one
        for one in finals(speed)
    ]
    got = conclude([*search(speed), *broke], SWEEP)
    assert got.answer is Answer.FASTER
    assert got.best.config == BIG
    assert "The plain chain violates a constraint, or broke." in headline(got)
