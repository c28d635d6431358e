"""The batched builder on the CPU: the reference's trees, node for node, ties included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core import tree as reference

torch = pytest.importorskip("torch")
trees = pytest.importorskip("ddtree_tune.sglang_plugin.trees")


@st.composite
def batches(draw):
    """(B, D, K) costs on the grid, ascending in each row; few values, so that many scores are equal."""
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    highest = draw(st.sampled_from([3, 40, 3_000_000]))
    seed = draw(st.integers(0, 2**32 - 1))
    return np.sort(np.random.default_rng(seed).integers(0, highest, shape), axis=-1)


def built(costs, budget):
    return trees.build_trees(torch.from_numpy(costs), budget)


@settings(deadline=None, max_examples=80)
@given(batches(), st.integers(1, 40))
def test_trees_are_the_references_node_for_node(costs, budget):
    _, depth, topk = costs.shape
    budget = min(budget, trees.largest_tree(depth, topk))
    batch = built(costs, budget)
    for request, rows in enumerate(costs):
        tree = reference.build_tree((-rows / trees.GRID).tolist(), budget)
        assert (0, *tree.parents_N) == tuple(batch.parents_BN[request].tolist())
        assert (0, *tree.depths_N) == tuple(batch.depths_BN[request].tolist())
        assert (0, *tree.ranks_N) == tuple(batch.ranks_BN[request].tolist())
        seen = trees.visibility(batch.parents_BN, min(depth, budget))[request]
        np.testing.assert_array_equal(seen.numpy(), reference.visibility(tree))


@settings(deadline=None, max_examples=50)
@given(batches(), st.integers(1, 40))
def test_links_lead_to_every_child_in_order(costs, budget):
    budget = min(budget, trees.largest_tree(*costs.shape[1:]))
    batch = built(costs, budget)
    first, following = trees.links(batch.parents_BN)
    for parents, child_of, sibling_of in zip(
        batch.parents_BN.tolist(), first.tolist(), following.tolist(), strict=True
    ):
        for node in range(budget + 1):
            children, at = [], child_of[node]
            while at >= 0:
                children.append(at)
                at = sibling_of[at]
            assert children == [child for child in range(1, budget + 1) if parents[child] == node]


def test_costs_are_on_the_grid_and_never_below_nothing():
    scores = torch.tensor([[[0.01, -1.0, -1.0000001, -torch.inf]]])
    assert trees.costs_of(scores).tolist() == [[[0, trees.GRID, trees.GRID, 1024 * trees.GRID]]]


def test_the_widest_tree_of_the_worst_scores_still_fits_its_keys():
    costs = torch.full((1, 31, 64), 1024 * trees.GRID, dtype=torch.int64)
    costs[:, :, 0] = 0
    batch = trees.build_trees(costs, 1024)
    assert batch.parents_BN.shape == (1, 1025)
    assert (batch.parents_BN[:, 1:] < torch.arange(1, 1025)).all()
    assert batch.depths_BN.max() == 31


def test_nodes_carry_the_tokens_of_their_positions():
    costs = torch.tensor([[[0, 9], [1, 2]]])
    tokens = torch.tensor([[[10, 11], [20, 21]]])
    drafted = trees.draft(costs, tokens, torch.tensor([7]), 4)
    assert drafted.tokens_BN.tolist() == [[7, 10, 20, 21, 11]]
    assert drafted.first(1).visible_BNN.shape == (1, 5, 5)


@pytest.mark.parametrize(("depth", "topk", "nodes"), [(15, 1, 15), (1, 4, 4), (3, 2, 14)])
def test_the_largest_tree_holds_every_path(depth, topk, nodes):
    assert trees.largest_tree(depth, topk) == nodes
