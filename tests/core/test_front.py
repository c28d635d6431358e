"""The Pareto front of a sweep: who is on it, who is told apart, and what is said of it."""

import itertools
import json
from dataclasses import asdict, replace

import pytest

from ddtree_tune.core.answer import answer_fields
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.objective_spec import Goal
from ddtree_tune.core.page.build import build
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.winners import Certainty
from tests.builders import CHAIN, NONE, attempts, tree
from tests.core.test_conclusion import finals, search
from tests.core.test_goals import GOALS, sweep, with_ttft

FAST, MIDDLE, SOON, BEATEN = tree(16, 4, 64), tree(8, 4, 64), tree(4, 4, 64), tree(32, 4, 64)
SPEED = {NONE: 1.0, CHAIN: 1.1, FAST: 1.6, MIDDLE: 1.4, SOON: 1.2, BEATEN: 1.3}
TTFT = {NONE: 0.2, CHAIN: 0.3, FAST: 0.4, MIDDLE: 0.3, SOON: 0.15, BEATEN: 0.5}
TWO = sweep("speedup", "ttft_p95")
LIMITED = SweepSpec.parse(f"{GOALS}\nobjective: {{goals: [speedup, ttft_p95], slos: [{{ttft_p95_s: 0.35}}]}}", "s.yaml")


def timed(trials, ttft=TTFT, noise=0.0):
    """The trials with their settings' TTFT, longer and shorter in turn by some noise."""
    turns = itertools.count()
    return [with_ttft(one, ttft[one.config] * (1 + noise * (-1) ** (next(turns) // 2))) for one in trials]


def front_of(trials, spec=TWO):
    return {one.config: one for one in conclude(trials, spec).front if one.certainty}


def test_the_front_is_what_no_other_setting_beats_at_every_goal():
    found = front_of(timed([*search(SPEED), *finals(SPEED)]))
    assert list(found) == [FAST, MIDDLE, SOON]
    assert {one.certainty for one in found.values()} == {Certainty.SURE}
    gains = dict(found[SOON].latencies)
    assert gains[Goal.TTFT].ratio == pytest.approx(0.75)
    assert found[FAST].speedup.ratio == pytest.approx(1.6, rel=0.01)
    everything = conclude(timed([*search(SPEED), *finals(SPEED)]), TWO).front
    assert {one.config for one in everything} == set(SPEED)
    assert all(one.rival is None for one in everything)


def test_one_goal_has_no_front():
    assert conclude(timed([*search(SPEED), *finals(SPEED)]), sweep("speedup")).front == ()


def test_what_was_measured_once_is_not_told_apart_from_anything():
    found = front_of(timed(search(SPEED)))
    assert list(found) == [FAST, MIDDLE, SOON]
    assert {one.certainty for one in found.values()} == {Certainty.ONCE}


def test_a_setting_that_only_luck_put_on_the_front_is_a_tie_with_the_one_that_it_does_not_beat():
    speed, ttft = {**SPEED, MIDDLE: 1.6 - 1e-3}, {**TTFT, MIDDLE: 0.4 - 1e-3}
    trials = timed([*search(speed), *finals(speed, rounds=3, noise=0.02)], ttft, noise=0.05)
    found = front_of(trials)
    pair = [one for one in (FAST, MIDDLE) if one in found]
    assert pair
    assert all(found[one].certainty is Certainty.TIE for one in pair)
    assert {found[one].rival for one in pair} <= {FAST, MIDDLE}
    assert found[SOON].certainty is Certainty.SURE


def test_a_setting_without_a_percentile_or_that_cannot_be_run_is_not_placed():
    trials = timed([*search(SPEED), *finals(SPEED)])
    unknown = [with_ttft(one, None) if one.config == MIDDLE else one for one in trials]
    placed = {one.config for one in conclude(unknown, LIMITED).front}
    assert MIDDLE not in placed
    assert FAST not in placed  # its TTFT breaks the limit
    assert SOON in placed


def test_problems_solved_are_a_goal_and_told_apart_by_the_same_problems():
    spec = sweep("speedup", "pass_rate")
    spec = spec.model_copy(update={"search": spec.search.model_copy(update={"pass_rate_margin": 1.0})})
    solved = {NONE: 12, CHAIN: 12, FAST: 4, MIDDLE: 11, SOON: 20, BEATEN: 4}
    trials = [replace(one, attempts=attempts(solved[one.config])) for one in search(SPEED)] + finals(SPEED)
    found = front_of(trials, spec)
    assert list(found) == [FAST, MIDDLE, SOON]
    assert found[SOON].solved.passed == 20
    assert found[SOON].certainty is Certainty.SURE
    assert found[FAST].certainty is Certainty.SURE
    page = "\n".join(answer_lines(conclude(trials, spec), trials, spec))
    assert "nothing else beats them at all of speedup, pass_rate; 3 others are beaten" in page
    assert any(
        line.split()[:1] == ["4/4/64"] and "20/20" in line and line.endswith("sure") for line in page.split("\n")
    )


def test_settings_that_are_exactly_alike_do_not_beat_each_other():
    alike = dict.fromkeys(SPEED, 1.0)
    found = front_of(timed([*search(alike), *finals(alike, rounds=3, noise=0)], dict.fromkeys(TTFT, 0.2)))
    assert set(found) == set(SPEED)
    assert {one.certainty for one in found.values()} == {Certainty.TIE}


def test_settings_that_lack_a_goal_are_counted_and_no_front_is_told():
    trials = timed([*search(SPEED), *finals(SPEED)])
    some = [with_ttft(one, None) if one.config == MIDDLE else one for one in trials]
    page = " ".join("\n".join(answer_lines(conclude(some, TWO), some, TWO)).split())
    assert "3 others are beaten as measured; 1 others lack a measurement of one" in page
    none = [with_ttft(one, None) if one.config == NONE else one for one in trials]
    page = "\n".join(answer_lines(conclude(none, TWO), none, TWO))
    assert "Compromises: none is known, for no setting has a measurement of all of speedup, ttft_p95" in page


def test_the_front_is_printed_drawn_and_given_to_programs():
    trials = timed([*search(SPEED), *finals(SPEED)])
    got = conclude(trials, TWO)
    page = "\n".join(answer_lines(got, trials, TWO))
    assert "Compromises: nothing else beats them at all of speedup, ttft_p95; 3 others are beaten" in page
    (section,) = (one for one in build(trials, got, TWO).sections if one.key == "front")
    chart, table = section.blocks
    assert {row["setting"] for row in chart.spec["data"]["values"]} == {config.label for config in SPEED}
    assert [row[0] for row in table.rows if row[-1] != "beaten"] == ["16/4/64", "8/4/64", "4/4/64"]
    fields = json.loads(json.dumps(answer_fields(got, trials, TWO, root="", partial=None)))
    assert [one["setting"] for one in fields["front"] if one["certainty"]] == ["16/4/64", "8/4/64", "4/4/64"]
    assert fields["front"][2]["ttft_p95_x_no_speculation"]["ratio"] == pytest.approx(0.75)
    alone = sweep("speedup")
    assert not [one for one in build(trials, conclude(trials, alone), alone).sections if one.key == "front"]


def test_no_speculation_stands_beside_itself_at_exactly_one():
    (plain,) = (
        one for one in conclude(timed([*search(SPEED), *finals(SPEED)]), TWO).front if one.config == NO_SPECULATION
    )
    assert asdict(plain.speedup)["ratio"] == pytest.approx(1.0)
    assert dict(plain.latencies)[Goal.TTFT].ratio == pytest.approx(1.0)
