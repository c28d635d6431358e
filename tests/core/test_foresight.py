"""The prior of a search from traces: its own window, else the nearest; weights as the sweep has them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core.calibrated import accept_len
from ddtree_tune.core.foresight import SHARES, Replayed, foresee, nearest
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.speedup import NO_SPECULATION, PLAIN_CHAIN, rates, speedup
from tests.builders import tree
from tests.drafts import request_of, trace_of
from tests.engines import SHAPES, measured_cell, step_of, trial

CONFIGS = tuple(tree(budget, topk, window) for budget in (4, 8, 16) for topk in (2, 4, 8) for window in (None, 64))


@pytest.fixture(scope="module")
def drafts():
    rng = np.random.default_rng(4)
    requests = [request_of(rng, reply=30, depth=15, topk=4, after=16, name=str(i)) for i in range(6)]
    return trace_of([replace(one, context=context) for one, context in zip(requests, (60, 512) * 3, strict=True)])


@pytest.mark.parametrize(
    ("window", "topk", "traced"),
    [(64, 2, (64, 2)), (100, 2, (64, 2)), (None, 8, (2048, 4)), (1024, 4, (2048, 4)), (256, 3, (64, 3))],
)
def test_a_setting_is_foretold_as_its_nearest_traced_neighbour(window, topk, traced):
    assert nearest(tree(8, topk, window), {64: 8, 2048: 4}) == tree(8, traced[1], traced[0])


def test_no_window_is_nearest_to_itself():
    assert nearest(tree(8, 4), {64: 8, None: 8}).window is None
    assert nearest(tree(8, 4, 4096), {64: 8, None: 8}).window is None
    assert nearest(tree(8, 4, 128), {64: 8, None: 8}).window == 64


@pytest.fixture(scope="module")
def weights():
    return {measured_cell(*shape, 1, 1.0).cell_id: 1.0 for shape in SHAPES}


BASE = trial(0, NO_SPECULATION, 1, lambda _: 1.0)


def engine(number, config, accept_len, share):
    """A trial of an engine whose tokens take that share of what a step of 16 takes longer than one without drafts."""
    width = (config.budget or 15) + 1
    cells = []
    for shape in SHAPES:
        plain_s = step_of(1, shape[1])
        step_s = plain_s * (3 - share * 2 * (16 - width) / 15)
        cells.append(CellResult(measured_cell(*shape, width, accept_len(shape[0]), step_s), ()))
    return replace(trial(number, config, width, accept_len), cells=tuple(cells))


@pytest.mark.parametrize("at", range(len(SHARES)))
def test_the_account_with_the_engines_own_share_foretells_what_every_setting_gains(drafts, weights, at):
    replayed = Replayed.of([drafts], CONFIGS)

    def run(number, config):
        return engine(number, config, lambda context: math.exp(replayed(config, context).log), SHARES[at])

    chain = engine(1, PLAIN_CHAIN, lambda _: 3.0, SHARES[at])
    foretold = foresee([BASE, chain, run(2, CONFIGS[4])], weights, replayed)
    for number, config in enumerate(CONFIGS, 20):
        truth = math.log(speedup(run(number, config), rates(BASE)).score)
        assert foretold(config)[at] == pytest.approx(truth, abs=1e-6)


def test_without_traces_the_chain_tells_what_trees_gain(weights):
    def run(number, config):
        return engine(number, config, lambda _: accept_len(0.7, config.budget or 15, config.topk or 1, 15), SHARES[2])

    foretold = foresee([BASE, run(1, PLAIN_CHAIN)], weights)
    for number, config in enumerate(CONFIGS, 20):
        truth = math.log(speedup(run(number, config), rates(BASE)).score)
        assert foretold(config)[2] == pytest.approx(truth, abs=1e-6)


def test_the_more_of_a_step_is_the_tokens_the_smaller_the_budget_that_is_foretold_best(drafts, weights):
    replayed = Replayed.of([drafts], CONFIGS)
    foretold = foresee([BASE, engine(1, PLAIN_CHAIN, lambda _: 3.0, 0.5)], weights, replayed)
    best = [CONFIGS[at].budget for at in np.stack([foretold(config) for config in CONFIGS]).argmax(axis=0)]
    assert best == sorted(best, reverse=True)
    assert best[0] > best[-1]


def test_a_chain_whose_steps_are_the_faster_ones_grows_with_no_tokens(drafts, weights):
    replayed = Replayed.of([drafts], CONFIGS)
    faster = trial(1, PLAIN_CHAIN, 16, lambda _: 3.0, factor=0.1)
    foretold = np.stack([foresee([BASE, faster], weights, replayed)(config) for config in CONFIGS])
    assert np.isfinite(foretold).all()
    assert np.ptp(foretold, axis=1).max() < 1e-9
    assert CONFIGS[foretold[:, 0].argmax()].budget == 16


def test_only_cells_that_count_are_foretold(drafts, weights):
    replayed = Replayed.of([drafts], CONFIGS)
    known = [BASE, engine(1, CONFIGS[0], lambda context: 3.0 if context == 60 else 2.0, 0.1)]
    first = next(iter(weights))
    alone, doubled = (foresee(known, {**dict.fromkeys(weights, 0.0), first: of}, replayed) for of in (1.0, 2.0))
    assert alone(CONFIGS[3]) == pytest.approx(doubled(CONFIGS[3]))
    assert alone(CONFIGS[3]) != pytest.approx(foresee(known, weights, replayed)(CONFIGS[3]))


def test_nothing_is_foretold_before_a_baseline_and_a_step_were_measured(drafts, weights):
    replayed = Replayed.of([drafts], CONFIGS)
    drafted = engine(1, PLAIN_CHAIN, lambda _: 3.0, 0.1)
    for traces in (replayed, None):
        assert foresee([], weights, traces) is None
        assert foresee([BASE], weights, traces) is None
        assert foresee([drafted], weights, traces) is None
        assert foresee([BASE, drafted], weights, traces) is not None


def test_the_order_in_which_trials_are_told_does_not_matter(weights):
    told = [BASE, engine(1, PLAIN_CHAIN, lambda _: 3.0, 0.1), engine(2, tree(8, 4), lambda _: 4.0, 0.9)]
    one, other = foresee(told, weights), foresee(told[::-1], weights)
    for config in CONFIGS:
        assert one(config) == pytest.approx(other(config), abs=1e-12)
