"""The batched builder: the reference's trees, node for node, ties included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sglang_plugin.drafts import Draft, draft

torch = pytest.importorskip("torch")
trees = pytest.importorskip("ddtree_tune.sglang_plugin.trees")


@st.composite
def drafts(draw):
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    return draft(draw(st.integers(0, 2**32 - 1)), shape, highest=draw(st.sampled_from([3, 40, 3_000_000])))


@settings(deadline=None, max_examples=40)
@given(drafts(), st.integers(1, 24))
def test_trees_are_the_references_node_for_node(drafted, budget):
    budget = min(budget, drafted.largest())
    batch = drafted.built(budget)
    for request, (tree, tokens) in enumerate(drafted.expected(budget)):
        assert (0, *tree.parents_N) == tuple(batch.parents_BN[request].tolist())
        assert (0, *tree.depths_N) == tuple(batch.depths_BN[request].tolist())
        assert [int(drafted.roots[request]), *tokens] == batch.tokens_BN[request].tolist()


@settings(deadline=None, max_examples=20)
@given(drafts(), st.integers(1, 12))
def test_links_lead_to_every_child_in_order(drafted, budget):
    budget = min(budget, drafted.largest())
    batch = drafted.built(budget)
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


def test_a_wide_tree_of_the_worst_scores_still_fits_its_keys():
    worst = np.full((1, 31, 64), 1024 * trees.GRID)
    worst[:, :, 0] = 0
    drafted = Draft(worst, np.tile(np.arange(64), (1, 31, 1)), np.zeros(1, np.int64))
    batch, (expected,) = drafted.built(200), drafted.expected(200)
    assert tuple(batch.parents_BN[0, 1:].tolist()) == expected[0].parents_N
    assert batch.depths_BN.max() == 31


def test_a_tree_beyond_its_keys_is_refused():
    drafted = draft(0, (1, 4, 2))
    scores, tokens = torch.zeros(1, 600, 3000), torch.zeros(1, 600, 3000, dtype=torch.int64)
    with pytest.raises(ValueError, match="must fit its keys, but got a budget of 4999, topk 3000 and depth 600"):
        trees.build_trees(scores, tokens, torch.from_numpy(drafted.roots), trees.Trees.empty(1, 5000, "cpu"))


def test_scores_that_are_no_numbers_lead_to_no_place_outside_of_the_draft():
    """What a padded row of a CUDA graph may hold."""
    scores = torch.full((1, 4, 3), torch.nan)
    tokens = torch.arange(12).view(1, 4, 3)
    out = trees.Trees.empty(1, 30, "cpu")
    trees.build_trees(scores, tokens, torch.tensor([5]), out)
    assert ((out.depths_BN >= 0) & (out.depths_BN <= 4)).all()
    assert ((out.parents_BN >= 0) & (out.parents_BN < 30)).all()
    assert ((out.tokens_BN >= 0) & (out.tokens_BN < 12)).all()
