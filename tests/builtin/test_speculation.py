"""Candidates, masks, walks and effective knobs, against the plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.builtin.buffers import HIDDEN_SCORE
from ddtree_tune.builtin.decoder import Stream, walk
from ddtree_tune.builtin.sampling import Sampler, Sampling
from ddtree_tune.builtin.speculation import Draft, Speculation, candidates, tree_mask
from ddtree_tune.core import tree as reference
from ddtree_tune.core.engine import Algorithm


def drawn_tree(seed, depth, topk, budget):
    scores = np.random.default_rng(seed).standard_normal((depth, topk)) * 2
    scores = np.sort(scores - np.logaddexp.reduce(scores, 1)[:, None], 1)[:, ::-1]
    return reference.build_tree(scores.tolist(), budget)


trees = st.builds(drawn_tree, st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5), st.integers(1, 40))


@given(trees)
def test_the_mask_lets_each_node_see_its_ancestors_and_itself(tree):
    expected = np.where(reference.visibility(tree), 0, HIDDEN_SCORE)
    mask = tree_mask(tree.parents_N)
    assert mask.dtype == np.float32
    assert np.array_equal(mask[:, 0], expected)


@given(trees, st.integers(0, 10**6))
def test_the_walk_follows_the_reference(tree, seed):
    random = np.random.default_rng(seed)
    # Siblings have unlike tokens, because they are unlike candidates of one position.
    tokens = [rank * 10 + depth for depth, rank in zip(tree.depths_N, tree.ranks_N, strict=True)]
    choices = [int(random.choice(tokens)) for _ in range(tree.width)]
    draft = Draft(tree, tokens, np.zeros(tree.width, np.int64), tree_mask(tree.parents_N))
    stream = Stream(0, Sampler(Sampling(1, temperature=0.0)), frozenset())
    path, chosen = walk(stream, draft, np.empty((0, 0), np.float32), [-1, *choices], 1)
    assert tuple(path) == reference.walk(tree, tokens, choices)
    assert chosen == [choices[node] for node in path]


def test_a_stop_token_ends_the_walk():
    tree = reference.chain(3)
    stream = Stream(0, Sampler(Sampling(1, temperature=0.0)), frozenset({7}))
    draft = Draft(tree, [5, 7, 9], np.arange(4), tree_mask(tree.parents_N))
    path, chosen = walk(stream, draft, np.empty((0, 0), np.float32), [5, 7, 9, 1], 0)
    assert (path, chosen) == ([0, 1], [5, 7])


def test_candidates_are_the_best_tokens_with_their_log_probabilities():
    logits = np.random.default_rng(0).standard_normal((2, 3, 50)).astype(np.float32) * 4
    log_probs = logits - np.logaddexp.reduce(logits.astype(np.float64), -1)[..., None]
    order = np.argsort(-logits, -1)[..., :6]
    values, tokens = candidates(logits.copy(), 6)
    assert np.array_equal(tokens, order)
    assert np.allclose(values, np.take_along_axis(log_probs, order, -1), atol=1e-5)


@pytest.mark.parametrize(
    ("asked", "resolved"),
    [
        ((Algorithm.TREE, 8, 4), (8, 4, 9)),
        ((Algorithm.TREE, 2, 4), (2, 2, 3)),
        ((Algorithm.TREE, 40, 1), (15, 1, 16)),
        ((Algorithm.TREE, 5, 1), (5, 1, 6)),
        ((Algorithm.CHAIN, 5, 3), (15, 1, 16)),
        ((Algorithm.NONE, 5, 3), (0, 1, 1)),
    ],
)
def test_knobs_resolve_to_what_they_can_do(asked, resolved):
    speculation = Speculation.resolve(*asked, None, 16)
    assert (speculation.budget, speculation.topk, speculation.width) == resolved
