"""The search space: distinct points only, in octaves, whatever the axes are."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.engine import Algorithm, EngineConfig
from ddtree_tune.core.space import RANGE_STEPS, Space, resolve, size_key
from ddtree_tune.core.spec import SpaceSpec
from tests.builders import CHAIN, DIALECT, NONE, tree


def space(**axes):
    return Space.of(SpaceSpec.model_validate({"budget": [8], "topk": [4], "window": ["none"], **axes}), DIALECT)


def test_points_that_are_one_server_are_one_point():
    found = space(budget=[4, 16, 32], topk=[1, 4, 8])
    labels = [config.label for config in found.points.values()]
    # topk beyond the budget adds nothing; one candidate per position is a chain of at most 15 nodes
    assert labels == ["4/1/none", "4/4/none", "15/1/none", "16/4/none", "16/8/none", "32/4/none", "32/8/none"]
    assert all(config_id == config.config_id for config_id, config in found.points.items())


def test_no_window_lies_one_octave_beyond_the_widest():
    found = space(window=[64, 256, "none"])
    assert [found.place(tree(8, 4, window))["window"] for window in (64, 256, None)] == [6.0, 8.0, 9.0]


def test_a_seed_between_the_listed_values_has_a_place_and_a_baseline_has_none():
    found = space(budget=[4, 8])
    assert found.place(tree(6, 3)) == {"budget": np.log2(6), "topk": np.log2(3), "window": 1.0}
    assert found.place(NONE) is None
    assert found.place(CHAIN) is None
    assert found.place(EngineConfig(Algorithm.TREE, 8, 4, None, (("x", 1),))) is None


def test_flags_are_axes_ordered_only_if_all_their_values_are_sizes():
    found = space(flags={"page-size": [1, 16], "backend": ["fa3", "triton", None], "overlap": [True, False]})
    assert [(axis.name, axis.ordered) for axis in found.axes[3:]] == [
        ("backend", False),
        ("overlap", False),
        ("page-size", True),
    ]
    assert len(found.points) == 12
    first = next(iter(found.points.values()))
    assert first.flags == (("backend", "fa3"), ("overlap", True), ("page-size", 1))
    rows = np.asarray([found.encode(place) for place in found.places.values()])
    assert rows.shape == (12, 3 + 3 + 2 + 1)
    assert [part.stop - part.start for part in found.columns()] == [1, 1, 1, 3, 2, 1]


def test_one_and_true_are_different_values_of_a_flag():
    found = space(flags={"x": [1, True]})
    places = list(found.places.values())
    assert [place["x"] for place in places] == [0.0, 1.0]


def test_a_range_becomes_a_ladder_with_both_ends():
    linear = space(budget={"low": 4, "high": 9}).axes[0].values
    wide = space(budget={"low": 4, "high": 4096, "log": True}).axes[0].values
    assert linear == (4, 5, 6, 7, 8, 9)
    assert (wide[0], wide[-1], len(wide)) == (4, 4096, RANGE_STEPS)
    ratios = np.diff(np.log2(wide))
    assert ratios.max() < 0.5
    assert space(window={"low": 64, "high": 64}).axes[2].values == (64,)


sizes = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)


@given(budget=sizes, topk=sizes, window=sizes, unlimited=st.booleans(), block=st.integers(2, 32))
def test_every_requested_combination_is_a_point_and_points_are_canonical(budget, topk, window, unlimited, block):
    dialect = BuiltinDialect(block_size=block)
    windows = [*window, "none"] if unlimited else window
    found = Space.of(SpaceSpec.model_validate({"budget": budget, "topk": topk, "window": windows}), dialect)
    asked = itertools.product(budget, topk, [None if one == "none" else one for one in windows])
    canonical = {dialect.canonical(tree(*one)).config_id for one in asked}
    assert set(found.points) == canonical
    assert set(found.places) == canonical
    assert all(dialect.canonical(config) == config for config in found.points.values())


def test_resolve_puts_everything_but_the_three_knobs_into_flags():
    point = {"budget": 8, "topk": 4, "window": None, "b": 1, "a": "x"}
    assert resolve(point) == EngineConfig(Algorithm.TREE, 8, 4, None, (("a", "x"), ("b", 1)))
    with pytest.raises(TypeError, match="must be an integer, but got 'wide'"):
        resolve({"budget": 8, "topk": 4, "window": "wide"})


def test_size_orders_no_speculation_then_chain_then_trees_by_budget():
    configs = [tree(16, 2), tree(8, 8), tree(8, 4), tree(8, 4, 64), CHAIN, NONE]
    assert sorted(configs, key=size_key) == [NONE, CHAIN, tree(8, 4, 64), tree(8, 4), tree(8, 8), tree(16, 2)]
