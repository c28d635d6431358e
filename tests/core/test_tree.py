"""The reference tree: best first, nested in the budget, walked as the target chooses."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.tree import build_tree, chain, visibility, walk


@st.composite
def drafts(draw):
    """(D, K) log-probabilities, descending in each row."""
    depth, topk = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rows = draw(
        st.lists(st.lists(st.floats(-20, -0.001), min_size=topk, max_size=topk), min_size=depth, max_size=depth)
    )
    return [sorted(row, reverse=True) for row in rows]


def paths(tree):
    """Rank path of each node, in pop order."""
    found = [()]
    for parent, rank in zip(tree.parents_N, tree.ranks_N, strict=True):
        found.append((*found[parent], rank))
    return found[1:]


@given(drafts(), st.integers(1, 40), st.integers(1, 40))
def test_a_smaller_budget_is_a_prefix_of_a_larger_one(draft, one, other):
    small, large = sorted((one, other))
    assert paths(build_tree(draft, small)) == paths(build_tree(draft, large))[: build_tree(draft, small).width - 1]


@given(drafts(), st.integers(1, 30))
def test_the_tree_holds_the_most_probable_prefixes(draft, budget):
    tree = build_tree(draft, budget)

    def score(path):
        return sum(draft[at][rank] for at, rank in enumerate(path))

    taken = paths(tree)
    assert len(set(taken)) == len(taken)
    every = [()]
    for row in draft:
        every += [(*path, rank) for path in every if len(path) == len(every[-1]) for rank in range(len(row))]
    best = sorted((score(path) for path in set(every) - {()}), reverse=True)[: len(taken)]
    np.testing.assert_allclose(sorted(map(score, taken), reverse=True), best, atol=1e-9)
    assert len(taken) == min(budget, len(set(every)) - 1)


@given(drafts(), st.integers(1, 30))
def test_a_node_sees_its_ancestors_and_itself(draft, budget):
    tree = build_tree(draft, budget)
    seen = visibility(tree)
    for node in range(tree.width):
        ancestors = {node}
        while node and (node := tree.parents_N[node - 1]) is not None:
            ancestors.add(node)
        assert set(np.flatnonzero(seen[max(ancestors)])) == ancestors


@given(drafts(), st.integers(1, 30), st.data())
def test_the_walk_follows_the_targets_choices_down_and_stops_at_the_first_miss(draft, budget, data):
    tree = build_tree(draft, budget)
    tokens = [10 * depth + rank for depth, rank in zip(tree.depths_N, tree.ranks_N, strict=True)]
    choices = data.draw(st.lists(st.sampled_from([*tokens, -1]), min_size=tree.width, max_size=tree.width))
    path = walk(tree, tokens, choices)
    assert path[0] == 0
    for parent, node in itertools.pairwise(path):
        assert tree.parents_N[node - 1] == parent
        assert tokens[node - 1] == choices[parent]
    last = path[-1]
    children = [i + 1 for i, parent in enumerate(tree.parents_N) if parent == last]
    assert choices[last] not in [tokens[child - 1] for child in children]


def test_a_chain_is_one_path():
    tree = chain(3)
    assert tree.width == 4
    assert walk(tree, [7, 8, 9], [7, 8, 1, 0]) == (0, 1, 2)
    assert visibility(tree).sum() == 10
