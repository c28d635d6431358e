"""What the search says that it would do next, and that it does it when it is let."""

import json

import numpy as np
import pytest

from ddtree_tune.core.answer import hope_fields
from ddtree_tune.core.report import outlook
from ddtree_tune.core.search_spec import FinalSpec
from ddtree_tune.node.search import Study
from tests.builders import DIALECT, SPEC, record, spec, surface
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
