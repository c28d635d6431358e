"""The prior of a search from traces: its own window, else the nearest; weights as the sweep has them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ddtree_tune.core.foresight import Replayed, nearest
from ddtree_tune.core.speedup import NO_SPECULATION, rates, speedup
from tests.builders import tree
from tests.drafts import request_of, trace_of
from tests.engines import SHAPES, measured_cell, trial

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


def test_settings_are_foretold_from_step_times_of_the_sweeps_own_trials(drafts):
    replayed = Replayed.of([drafts], CONFIGS)
    base = trial(0, NO_SPECULATION, 1, lambda _: 1.0)

    def run(number, config):
        return trial(
            number,
            config,
            config.budget + 1,
            lambda context: math.exp(replayed.acceptances(nearest(config, {None: 4}), context).log),
        )

    known = [run(n, config) for n, config in enumerate(CONFIGS[::5], 1)]
    weights = {measured_cell(*shape, 1, 1.0).cell_id: 1.0 for shape in SHAPES}
    assert replayed.foresight([base], weights)(CONFIGS[0]) is None
    foretold = replayed.foresight([base, *known], weights)
    for n, config in enumerate(CONFIGS, 20):
        truth = math.log(speedup(run(n, config), rates(base)).score)
        assert foretold(config).log == pytest.approx(truth, abs=0.02)
    first = next(iter(weights))
    alone = replayed.foresight([base, *known], {**dict.fromkeys(weights, 0.0), first: 2.0})
    assert alone(CONFIGS[0]).log == pytest.approx(foretold.prior.cells(nearest(CONFIGS[0], {None: 4}))[first].log)
