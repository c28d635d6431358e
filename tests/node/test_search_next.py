"""What the search says that it would do next, and that it does it when it is let."""

import json

import numpy as np
import pytest

from ddtree_tune.core.answer import hope_fields
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.record import Origin
from ddtree_tune.core.report import outlook
from ddtree_tune.core.search_spec import FinalSpec
from ddtree_tune.core.space import Space
from ddtree_tune.node.search import Study
from tests.builders import CHAIN, DIALECT, NONE, SPEC, record, spec, surface
from tests.node.test_search import drive, measured


def longer(sweep, more=1):
    search = sweep.search.model_copy(update={"trials": sweep.search.trials + more})
    return sweep.model_copy(update={"search": search})


@pytest.mark.parametrize("sampler", ["surrogate", "grid"])
def test_a_sweep_that_is_let_go_on_tries_what_it_said(sampler):
    sweep = spec(sampler=sampler)
    study = Study(sweep, DIALECT)
    _, told = drive(study, sweep)
    assert study.done
    hope = study.next_hope()
    assert study.done
    again = Study(longer(sweep), DIALECT, told)
    assert again.ask().config == hope.config
    assert hope.config not in {one.config for one in told}


def gone_on(sweep, more, outcome=measured):
    """A complete sweep, and the same one with more trials: what each asked, and all that was told."""
    first, told = drive(Study(sweep, DIALECT), sweep, outcome)
    further = longer(sweep, more)
    second, then = drive(Study(further, DIALECT, told), further, outcome)
    return further, first, second, [*told, *then]


def again(asked):
    return [one for one in asked if one.origin is Origin.FINAL]


def rising(sweep, proposal):
    """The later a setting is tried, the faster it is; from the 18th trial on the node is slower by a half."""
    gain = 1.0 if proposal.config.algorithm != "tree" else 1.2 + 0.05 * RISING.index(proposal.config)
    return record(sweep, proposal, 100.0 * gain * (1.0 if int(proposal.trial_id[:4]) < 18 else 0.5))


RISING = [*(seed.config() for seed in spec().seeds), *Space.of(spec().space, DIALECT).points.values()]


def test_another_finalist_is_measured_beside_the_baselines_and_the_others_in_new_rounds():
    sweep, first, second, told = gone_on(spec(sampler="grid", trials=6), 3, rising)
    old, new = again(first), again(second)
    assert len(old) == len(new) == 2 * 4
    assert {one.round for one in old} == {0, 1}
    assert {one.round for one in new} == {2, 3}
    for turn in (2, 3):
        assert {NONE, CHAIN} < {one.config for one in new if one.round == turn}
    assert {one.config for one in new} - {one.config for one in old}
    got = conclude(told, sweep)
    assert got.best.config == new[0].config
    truth = rising(sweep, new[0]).cells[0].metrics.output_tps / 50.0
    assert got.best.vs_none.ratio == pytest.approx(truth)
    assert got.best.vs_none.rounds == 2
    for count in range(len(told) - len(second), len(told)):
        assert Study(sweep, DIALECT, told[:count]).ask() == second[count - len(told) + len(second)]
    assert Study(sweep, DIALECT, told).done


def test_where_the_finalists_stay_the_same_their_finals_stand():
    """The best two of this surface are the second and third point of the grid, and more trials change nothing."""

    def falling(sweep, proposal):
        gain = 1.0 if proposal.config.algorithm != "tree" else 2.0 - 0.05 * RISING.index(proposal.config)
        return record(sweep, proposal, 100.0 * gain)

    _, first, second, _ = gone_on(spec(sampler="grid", trials=6), 3, falling)
    assert again(first)
    assert [one.origin for one in second] == [Origin.SEARCH] * 3


def test_what_it_expects_is_near_the_truth_and_its_interval_holds_it():
    """Over many sweeps: the next trial's score lies inside two deviations nearly always."""
    inside, errors = [], []
    for seed in range(12):
        sweep = spec(
            SPEC.replace("[4, 8, 16, 32]", "[4, 6, 8, 12, 16, 24, 32]"),
            seed=seed,
            trials=12,
            final=FinalSpec(settings=0),
        )
        rng = np.random.default_rng(seed)
        factor = {}

        def outcome(sweep, proposal, rng=rng, factor=factor):
            noise = factor.setdefault(proposal.trial_id, float(np.exp(0.01 * rng.standard_normal())))
            return record(sweep, proposal, surface(proposal.config) * noise)

        study = Study(sweep, DIALECT)
        drive(study, sweep, outcome)
        hope = study.next_hope()
        truth = float(np.log(surface(hope.config) / surface(hope.best)))
        inside.append(abs(truth - hope.ratio.log) < 2 * hope.ratio.deviation + 0.02)
        errors.append(truth - hope.ratio.log)
    assert np.mean(inside) >= 0.9
    assert np.median(np.abs(errors)) < 0.05


def test_the_chance_of_a_better_setting_is_small_where_everything_was_measured_to_be_alike():
    sweep = spec(trials=20, final=FinalSpec(settings=0))
    alike = Study(sweep, DIALECT)
    drive(alike, sweep, lambda sweep, one: record(sweep, one, 100.0))
    early = Study(spec(trials=5, final=FinalSpec(settings=0)), DIALECT)
    drive(early, sweep, measured)
    assert 0 <= alike.next_hope().chance < 0.1
    assert alike.next_hope().chance < early.next_hope().chance <= 1


def test_where_nothing_is_left_or_nothing_is_known_nothing_is_said():
    small = spec(SPEC.replace("[4, 8, 16, 32]", "[4]"), trials=200)
    study = Study(small, DIALECT)
    drive(study, small)
    assert study.next_hope() is None
    assert Study(spec(), DIALECT).next_hope() is None


def test_it_is_said_with_the_command_that_goes_on():
    sweep = spec()
    study = Study(sweep, DIALECT)
    drive(study, sweep)
    hope = study.next_hope()
    text = outlook(hope, "/results/small-1")
    assert max(map(len, text.split("\n"))) <= 100
    assert f"Next the search would try {hope.config.label}. It expects " in text
    assert " ".join(text.split()).endswith(
        "raise search.trials in /results/small-1/sweep.yaml and run: ddtree-tune resume /results/small-1"
    )
    fields = json.loads(json.dumps(hope_fields(hope)))
    assert fields["setting"] == hope.config.label
    assert fields["best"] == hope.best.label
    assert fields["x_best"]["interval"]["low"] < fields["x_best"]["ratio"] < fields["x_best"]["interval"]["high"]
