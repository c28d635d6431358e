"""A study with several goals: what it proposes, whom it measures again, and that it can be resumed."""

import math
import warnings

import numpy as np
import pytest

from ddtree_tune.core.frontier import undominated
from ddtree_tune.core.record import Origin
from ddtree_tune.core.search_spec import FinalSpec
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.speedup import BASELINES
from ddtree_tune.node.search import Study
from tests.builders import DIALECT, NONE, record, tree
from tests.core.test_goals import with_ttft
from tests.node.test_search import SAMPLERS, drive

SPEC = """
name: goals
space: {budget: [2, 3, 4, 6, 8, 12, 16, 24, 32, 48], topk: [1, 2, 4, 8], window: [64, 128, 256, none]}
load: {contexts: [60, 512], concurrency: [1, 8], min_requests: 20}
objective: {goals: [speedup, ttft_p95]}
search: {trials: 16, final: {settings: 3, rounds: 2}}
"""
SWEEP = SweepSpec.parse(SPEC, "test")


def speed(config):
    """Best at budget 16, topk 4."""
    if config in BASELINES:
        return 1.0
    return 1.6 - 0.1 * math.log2(config.budget / 16) ** 2 - 0.05 * math.log2(config.topk / 4) ** 2


def ttft_s(config):
    """Best at budget 4, topk 1, and the shorter the smaller the window."""
    if config in BASELINES:
        return 0.3
    off = 0.2 * math.log2(config.budget / 4) ** 2 + 0.1 * math.log2(config.topk) ** 2
    return 0.2 * math.exp(off) * (1.0 if config.window == 64 else 1.2)


def measured(sweep, proposal, rng=None):
    noise = [math.exp(0.02 * rng.standard_normal()) if rng else 1.0 for _ in range(2)]
    one = record(sweep, proposal, 100.0 * speed(proposal.config) * noise[0])
    return with_ttft(one, ttft_s(proposal.config) * noise[1], p50=0.9 * ttft_s(proposal.config))


def seeded(seed):
    search = SWEEP.search.model_copy(update={"seed": seed})
    return SWEEP.model_copy(update={"search": search})


def share_of_the_front(searched):
    """How much of the true front's area over the plane of both goals the searched settings have."""
    space = [tree(b, k, w) for b in SWEEP.space.budget for k in (1, 2, 4, 8) for w in (64, 128, 256, None)]
    whole, found = (_area([(math.log(speed(one)), -math.log(ttft_s(one))) for one in of]) for of in (space, searched))
    return found / whole


def _area(points):
    """What points dominate above (-0.3, 0), no speculation's speed or worse and the slowest TTFT of interest."""
    kept = np.asarray([point for point in points if point[0] > -0.3 and point[1] > 0]).reshape(-1, 2)
    front = sorted(kept[undominated(kept)].tolist(), reverse=True)
    above, area = 0.0, 0.0
    for gain, quick in front:
        area += (gain + 0.3) * max(0.0, quick - above)
        above = max(above, quick)
    return area


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_study_of_two_goals_rebuilt_from_any_point_asks_the_same_next_trial(sampler):
    sweep = SWEEP.model_copy(update={"search": SWEEP.search.model_copy(update={"sampler": sampler, "trials": 9})})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked, told = drive(Study(sweep, DIALECT), sweep, measured)
    assert len(asked) == 9 + 2 * 5
    for count in range(len(told)):
        assert Study(sweep, DIALECT, told[:count]).ask() == asked[count]
    assert Study(sweep, DIALECT, told).done


def test_the_search_covers_the_front_and_better_than_chance():
    """Fourteen settings of 160 against as many drawn at random, eight seeds each."""
    ours, random = [], []
    for seed in range(8):
        for sampler, shares in (("surrogate", ours), ("random", random)):
            sweep = seeded(seed)
            sweep = sweep.model_copy(update={"search": sweep.search.model_copy(update={"sampler": sampler})})
            rng = np.random.default_rng(seed)
            asked, _ = drive(
                Study(sweep, DIALECT), sweep, lambda sweep, one, rng=rng: measured(sweep, one, rng),
                stop=lambda asked: len(asked) == 16,
            )  # fmt: skip
            shares.append(share_of_the_front([one.config for one in asked if one.origin is Origin.SEARCH]))
    assert np.median(ours) > 0.9
    assert np.median(ours) > np.median(random)
    assert min(ours) > np.quantile(random, 0.25)


def test_the_finals_measure_the_ends_of_the_front_again():
    asked, _ = drive(Study(SWEEP, DIALECT), SWEEP, measured)
    searched = [one.config for one in asked if one.origin is Origin.SEARCH]
    again = [one.config for one in asked if one.origin is Origin.FINAL and one.config not in BASELINES]
    assert len(set(again)) == 3
    # By belief, which takes neighbours for nearly as good.
    assert max(map(speed, again)) > 0.97 * max(map(speed, searched))
    assert min(map(ttft_s, again)) < 1.03 * min(map(ttft_s, searched))
    assert NONE in [one.config for one in asked if one.origin is Origin.FINAL]


def test_with_one_goal_the_finals_are_the_fastest_whatever_else_they_do():
    alone = SWEEP.objective.model_copy(update={"goals": SWEEP.objective.goals[:1]})
    search = SWEEP.search.model_copy(update={"final": FinalSpec(settings=2, rounds=1)})
    sweep = SWEEP.model_copy(update={"objective": alone, "search": search})
    asked, _ = drive(Study(sweep, DIALECT), sweep, measured)
    searched = [one.config for one in asked if one.origin is Origin.SEARCH]
    again = {one.config for one in asked if one.origin is Origin.FINAL} - set(BASELINES)
    assert again <= set(sorted(searched, key=speed, reverse=True)[:4])
