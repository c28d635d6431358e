"""Beliefs: luck is drawn towards the neighbours, a stopped trial is worth less, a wrong prior is let go."""

import math

import numpy as np
import pytest

from ddtree_tune.core.beliefs import Beliefs
from ddtree_tune.core.objective import Observation, Verdict
from ddtree_tune.core.space import Space
from ddtree_tune.core.step_time import Estimate
from tests.builders import DIALECT, spec, surface, tree

SPACE = Space.of(spec().space, DIALECT)
POINTS = tuple(SPACE.points.values())
RISING = (tree(4, 4, 64), tree(8, 4, 64), tree(16, 4, 64), tree(32, 4, 64))


def log(config):
    return math.log(surface(config) / 100)


def seen(config, value, deviation=0.01):
    return config, Observation(Verdict.MEASURED, value, deviation)


def stopped(config, first):
    return config, Observation(Verdict.STOPPED, first=Estimate(first, 0.01))


def test_a_lucky_measurement_is_drawn_towards_its_neighbours():
    values = {one: log(one) for one in POINTS if one.window == 64}
    lucky, best = RISING[0], RISING[2]
    values[lucky] = values[best] + 0.01  # far from the best, but measured best by one per cent
    noisy = Beliefs(SPACE, [seen(one, value, 0.1) for one, value in values.items()]).ranked()
    sure = Beliefs(SPACE, [seen(one, value, 0.001) for one, value in values.items()], 0.001).ranked()
    assert max(noisy, key=noisy.get) == best
    assert max(sure, key=sure.get) == lucky
    assert noisy[lucky] < values[lucky] - 0.01


def test_a_noisier_trial_moves_further():
    others = [seen(one, log(one), 0.01) for one in RISING[1:]]
    quiet, loud = (Beliefs(SPACE, [seen(RISING[0], 0.9, own), *others]).ranked()[RISING[0]] for own in (0.01, 0.2))
    assert loud < quiet < 0.9


def test_picking_by_belief_beats_picking_by_luck():
    rng = np.random.default_rng(3)
    luck, belief = [], []
    best = max(map(log, POINTS))
    for _ in range(60):
        picked = [POINTS[i] for i in rng.permutation(len(POINTS))[:10]]
        values = {one: log(one) + rng.normal(0, 0.05) for one in picked}
        ranked = Beliefs(SPACE, [seen(one, value, 0.05) for one, value in values.items()], 0.005).ranked()
        luck.append(best - log(max(values, key=values.get)))
        belief.append(best - log(max(ranked, key=ranked.get)))
    assert np.mean(belief) < np.mean(luck)


def test_a_stopped_trial_is_guessed_as_complete_ones_did_and_is_no_candidate():
    complete = [
        (one, Observation(Verdict.MEASURED, log(one), 0.01, Estimate(log(one) + 0.1, 0.01))) for one in RISING[1:]
    ]
    beliefs = Beliefs(SPACE, [*complete, stopped(RISING[0], 0.5)])
    scores = beliefs.scores()
    assert beliefs.rest.mean == pytest.approx(-0.1)
    assert scores[RISING[0]].log == pytest.approx(0.4)
    assert scores[RISING[0]].deviation > 1.5 * scores[RISING[1]].deviation
    assert RISING[0] not in beliefs.ranked()


def test_a_setting_without_a_place_keeps_what_was_measured():
    elsewhere = tree(16, 4, 64)
    elsewhere = type(elsewhere)(elsewhere.algorithm, 16, 4, 64, (("flag", 1),))
    assert Beliefs(SPACE, [seen(elsewhere, 0.7)]).ranked() == {elsewhere: 0.7}
    assert Beliefs(SPACE, []).ranked() == {}


def search(foresight, trials, seed):
    """How far the best setting that was tried lies below the best, after each trial."""
    rng = np.random.default_rng(seed)
    tried, gaps = [], []
    best = max(map(log, POINTS))
    for _ in range(trials):
        left = {one.config_id: one for one in POINTS if one not in dict(tried)}
        config = Beliefs(SPACE, tried, foresight=foresight).promising(left, ())
        tried.append(seen(config, log(config) + rng.normal(0, 0.01)))
        gaps.append(best - max(log(one) for one, _ in tried))
    return gaps


def test_a_right_prior_saves_trials_and_a_wrong_one_costs_trials_but_not_the_answer():
    right = [search(lambda one: np.asarray([log(one) + 1.0]), 3, seed) for seed in range(3)]
    none = [search(None, 16, seed) for seed in range(3)]
    wrong = [search(lambda one: np.asarray([-log(one)]), 16, seed) for seed in range(3)]
    assert max(gaps[0] for gaps in right) < 0.01
    assert min(gaps[0] for gaps in none) > 0.01
    assert min(gaps[0] for gaps in wrong) > 0.1
    assert max(gaps[-1] for gaps in none) < 0.01
    assert max(gaps[-1] for gaps in wrong) < 0.01


def test_of_several_accounts_the_one_that_agrees_is_believed():
    def several(one):
        return np.asarray([-log(one), 0.0, log(one) + 1.0, 0.5 - 2 * log(one)])

    for seed in range(3):
        right, mixed = (search(foresight, 6, seed) for foresight in (lambda one: several(one)[2:3], several))
        assert right[-1] < 0.01
        assert mixed[-1] < 0.01


def test_a_prior_that_agrees_tells_measured_settings_apart_better_than_their_noise():
    rng = np.random.default_rng(5)
    off = {"none": [], "right": []}
    for _ in range(10):
        tried = [seen(one, log(one) + rng.normal(0, 0.05), 0.05) for one in POINTS[::2]]
        for name, foresight in (("none", None), ("right", lambda one: np.asarray([log(one) + 1.0]))):
            ranked = Beliefs(SPACE, tried, foresight=foresight).ranked()
            off[name].append(float(np.std([value - log(one) for one, value in ranked.items()])))
    assert np.mean(off["right"]) < 0.7 * np.mean(off["none"])


def test_what_a_prior_does_not_know_is_taken_as_its_mean_and_a_prior_of_nothing_as_none():
    partly = search(lambda one: np.asarray([log(one)]) if one.window == 64 else None, 3, 0)
    assert partly[-1] < 0.05
    assert search(lambda _: None, 5, 0) == search(None, 5, 0)
