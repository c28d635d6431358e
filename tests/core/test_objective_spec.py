"""Weights and latency limits: which cells they name, what they do to a score, and what is refused."""

import math
from dataclasses import replace

import pytest

from ddtree_tune.core.conclusion import Answer, conclude
from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.metrics import Summary
from ddtree_tune.core.objective import Yardstick, observe
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.speedup import score_against
from tests.builders import CHAIN, NONE, SPEC, proposal, record
from tests.core.test_conclusion import BIG, SMALL, SPEED, finals, search, users

LONG = SPEC.replace("concurrency: [1, 8]}", "concurrency: [1, 8], min_requests: 20}")


def sweep(objective, text=LONG):
    return SweepSpec.parse(f"{text}\nobjective: {objective}", "s.yaml")


def by_shape(spec):
    return {(cell.context, cell.concurrency): spec.objective.weight(cell) for cell in spec.load.cells()}


def test_weights_multiply_where_several_hold_a_cell():
    spec = sweep("{weights: [{concurrency: 1, weight: 3}, {context: 512, weight: 0.5}]}")
    assert by_shape(spec) == {(60, 1): 3.0, (60, 8): 1.0, (512, 1): 1.5, (512, 8): 0.5}
    assert set(by_shape(sweep("{}")).values()) == {1.0}


def test_the_score_is_the_weighted_mean_and_a_cell_of_weight_0_may_be_missing():
    spec = sweep("{weights: [{concurrency: 8, weight: 0}, {context: 60, weight: 3}]}")
    gains = {(60, 1): 1.2, (512, 1): 2.0, (60, 8): 9.0, (512, 8): 9.0}
    base = record(spec, proposal(1, NONE), lambda c, u: 100.0 * u)
    mine = record(spec, proposal(2, BIG), lambda c, u: 100.0 * u * gains[c, u])
    expected = (3 * math.log(1.2) + math.log(2.0)) / 4
    assert score_against(mine, [base], spec.weights()) == pytest.approx(math.exp(expected))
    lacking = replace(mine, cells=tuple(one for one in mine.cells if one.metrics.concurrency == 1))
    assert observe(lacking, Yardstick.of(spec, [base])).value == pytest.approx(expected)
    assert score_against(lacking, [base]) is None


def test_what_counts_decides_the_answer():
    by_load = {NONE: 1.0, CHAIN: 1.0, BIG: users(2.0, 1.1), SMALL: users(1.4, 1.6)}
    trials = [*search(by_load), *finals(by_load)]
    one_user, eight = "{weights: [{concurrency: 1, weight: 9}]}", "{weights: [{concurrency: 8, weight: 9}]}"
    assert conclude(trials, sweep(one_user)).best.config == BIG
    assert conclude(trials, sweep(eight)).best.config == SMALL


def slow(trials, config, ttft_s, only=lambda cell: True):
    """The trials, those of one configuration with a TTFT whose 95th percentile is this."""
    found = []
    for one in trials:
        cells = tuple(
            CellResult(replace(cell.metrics, ttft_s=Summary(40, 0.1, 0.1, ttft_s, None)), ())
            if only(cell.metrics)
            else cell
            for cell in one.cells
        )
        found.append(replace(one, cells=cells) if one.config == config else one)
    return found


def test_a_setting_that_breaks_a_limit_is_not_recommended_and_the_report_says_where():
    spec = sweep("{slos: [{context: 512, ttft_p95_s: 0.5}]}")
    trials = slow([*search(), *finals()], BIG, 0.7, only=lambda cell: cell.context == 512 and cell.concurrency == 8)
    got = conclude(trials, spec)
    assert got.best.config == SMALL
    big = next(one for one in got.settings if one.config == BIG)
    assert not big.feasible
    assert [(one.cell_id, one.summary, one.seconds, one.limit_s) for one in big.broken] == [
        ("chat_i512_o128_c8", "ttft_s", 0.7, 0.5)
    ]
    # Where it keeps its limits it may still be the best of a cell.
    assert [one.config for one in got.cells] == [BIG, BIG, BIG, SMALL]
    page = "\n".join(answer_lines(got, trials, spec))
    assert "Latency limits that are not kept" in page
    assert any(
        line.split() == ["16/4/64", "chat_i512_o128_c8", "ttft_p95_s", "0.7", "0.5"] for line in page.split("\n")
    )
    assert "breaks a latency limit" in page


def test_one_slow_moment_of_several_trials_breaks_nothing():
    spec = sweep("{slos: [{ttft_p95_s: 0.5}]}")
    again = finals(rounds=2)
    trials = [*search(), *slow(again[:4], BIG, 0.7), *again[4:]]
    assert conclude(trials, spec).best.config == BIG


def test_a_search_learns_a_broken_limit_as_a_constraint_and_an_unknown_percentile_as_nothing():
    spec = sweep("{slos: [{ttft_p95_s: 0.5}, {concurrency: 8, ttft_p95_s: 0.3, tpot_p95_s: 0.02}]}")
    (late,) = slow([record(spec, proposal(1, BIG))], BIG, 0.4)
    got = observe(late, Yardstick.of(spec, [record(spec, proposal(2, NONE))]))
    assert dict(got.constraints)["ttft_s in chat_i60_o128_c1"] == pytest.approx(math.log(0.8))
    assert dict(got.constraints)["ttft_s in chat_i60_o128_c8"] == pytest.approx(math.log(4 / 3))
    assert dict(got.constraints)["tpot_s in chat_i60_o128_c8"] < 0
    assert "tpot_s in chat_i60_o128_c1" not in dict(got.constraints)
    assert not got.feasible
    (unknown,) = slow([record(spec, proposal(1, BIG))], BIG, None)
    assert observe(unknown, Yardstick.of(spec, [record(spec, proposal(2, NONE))])).feasible


def test_where_no_setting_keeps_the_limits_there_is_no_answer_and_it_says_so():
    spec = sweep("{slos: [{ttft_p95_s: 0.05}]}")
    got = conclude([*search(SPEED), *finals(SPEED)], spec)
    assert got.answer is Answer.NOTHING
    limits = "no searched setting that was compared keeps every latency limit (objective.slos)"
    assert got.why == f"{limits}; nor does a baseline"
    late = [record(spec, one.proposal) for one in search(SPEED)]
    late = slow(slow(slow(late, BIG, 0.04), SMALL, 0.7), NONE, 0.04)
    assert conclude([one for one in late if one.config != BIG], spec).why == f"{limits}; no speculation may be run"


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        ("{weights: [{concurrency: 3, weight: 2}]}", "objective.weights must name cells of the load matrix, but got c"),
        ("{slos: [{context: 61, ttft_p95_s: 2.0}]}", "objective.slos must name cells of the load matrix, but got cont"),
        ("{slos: [{context: 60}]}", "ttft_p95_s or tpot_p95_s must be given, but got neither"),
        ("{weights: [{weight: 0}]}", "objective.weights must leave a cell that counts"),
        ("{weights: [{weight: -1}]}", "objective.weights[0].weight"),
        ("{slos: [{ttft_p95_s: 0}]}", "objective.slos[0].ttft_p95_s"),
        ("{goals: [ttft_p95]}", "objective.goals: must hold speedup, and each goal once, but got ['ttft_p95']"),
        (
            "{goals: [speedup, speedup]}",
            "objective.goals: must hold speedup, and each goal once, but got ['speedup', 'speedup']",
        ),
        ("{goals: [speedup, ttft_p99]}", "objective.goals[1]"),
        ("{goals: []}", "objective.goals: must hold speedup, and each goal once, but got []"),
    ],
)
def test_what_is_wrong_gets_one_sentence(objective, sentence):
    with pytest.raises(SpecError) as raised:
        sweep(objective)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_limit_needs_enough_requests_for_its_percentile():
    with pytest.raises(SpecError, match=r"load.min_requests times load.repeats must be at least 20 .* but got 0"):
        sweep("{slos: [{ttft_p95_s: 2.0}]}", SPEC)
    with pytest.raises(SpecError, match=r"must be at least 20 with objective.goals of a 95th percentile, .* but got 0"):
        sweep("{goals: [speedup, tpot_p95]}", SPEC)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("coding: null", "objective.goals must not hold pass_rate where coding is null"),
        (
            "load: {contexts: [60], concurrency: [1], first: {contexts: [60], concurrency: [1]}}",
            "load.first must be left out with several objective.goals",
        ),
        ("search: {trace: a.jsonl}", "search.trace must be left out with several objective.goals"),
    ],
)
def test_several_goals_refuse_what_does_not_go_with_them(more, sentence):
    lines = [line for line in SPEC.strip().split("\n") if line.split(":")[0] != more.split(":")[0]]
    text = "\n".join([*lines, more, "objective: {goals: [speedup, pass_rate]}"])
    with pytest.raises(SpecError, match=sentence) as raised:
        SweepSpec.parse(text, "s.yaml")
    assert "\n" not in str(raised.value)


def test_speed_comes_first_whatever_the_order_of_the_goals():
    assert sweep("{goals: [tpot_p95, speedup, ttft_p95]}").objective.goals == ("speedup", "tpot_p95", "ttft_p95")


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        ("{contexts: [60, 61], concurrency: [1]}", "load: first.contexts must be some of [60, 512], but got [60, 61]"),
        ("{contexts: [60], concurrency: [2]}", "load: first.concurrency must be some of [1, 8], but got [2]"),
        ("{contexts: [], concurrency: [1]}", "load.first.contexts"),
    ],
)
def test_the_first_cells_are_cells_of_the_matrix(first, sentence):
    with pytest.raises(SpecError) as raised:
        SweepSpec.parse(SPEC.replace("concurrency: [1, 8]}", f"concurrency: [1, 8], first: {first}}}"), "s.yaml")
    assert sentence in str(raised.value)
