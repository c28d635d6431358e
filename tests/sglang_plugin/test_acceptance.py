"""The walk and what follows from it, on the CPU: the reference's path, and the target's distribution."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core import tree as reference

torch = pytest.importorskip("torch")
trees = pytest.importorskip("ddtree_tune.sglang_plugin.trees")
acceptance = pytest.importorskip("ddtree_tune.sglang_plugin.acceptance")


def drafted(seed, *, requests=4, depth=4, topk=3, budget=9, vocabulary=5):
    """A batch of trees over a vocabulary so small that the target often agrees; its ranks; its longest path."""
    random = np.random.default_rng(seed)
    costs = torch.from_numpy(np.sort(random.integers(0, 50_000, (requests, depth, topk)), axis=-1))
    tokens = np.argsort(random.random((requests, depth, vocabulary)), axis=-1)[:, :, :topk]
    roots = torch.from_numpy(random.integers(0, vocabulary, requests))
    batch = trees.draft(costs, torch.from_numpy(tokens.copy()), roots, budget)
    return batch, trees.build_trees(costs, budget).ranks_BN, min(depth, budget) + 1


def chosen(seed, batch):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 5, batch.tokens_BN.shape))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_the_walk_is_the_references(seed):
    batch, ranks, longest = drafted(seed)
    choices, tokens = chosen(seed, batch), batch.tokens_BN
    accepted = acceptance.walk(batch, choices, longest)
    for request in range(len(tokens)):
        tree = reference.DraftTree(
            *(tuple(one[request, 1:].tolist()) for one in (batch.parents_BN, batch.depths_BN, ranks))
        )
        path = reference.walk(tree, tokens[request, 1:].tolist(), choices[request].tolist())
        length = int(accepted.lengths_B[request])
        assert tuple(accepted.path_BW[request, :length].tolist()) == path
        assert not accepted.path_BW[request, length:].any()
        committed = [*tokens[request, list(path[1:])].tolist(), int(choices[request, path[-1]])]
        assert accepted.tokens_BW[request, :length].tolist() == committed


def test_sampled_text_has_the_targets_distribution_whatever_the_tree():
    """Chi-square over the first two tokens of 40 000 walks in two trees, against the exact products."""
    random = np.random.default_rng(11)
    vocabulary, runs = 4, 40_000
    first, second = random.dirichlet(np.ones(vocabulary)), random.dirichlet(np.ones(vocabulary), vocabulary)
    torch.manual_seed(5)
    for seed in (1, 2):
        one, _, longest = drafted(seed, requests=1, depth=2, topk=2, budget=5, vocabulary=vocabulary)
        rows = [
            second[token] if depth == 1 else first
            for token, depth in zip(one.tokens_BN[0], one.depths_BN[0], strict=True)
        ]
        probs = torch.tensor(np.stack(rows), dtype=torch.float32).expand(runs, -1, -1)
        parts = (one.tokens_BN, one.parents_BN, one.depths_BN, one.visible_BNN)
        many = trees.Drafted(*(part.expand(runs, *part.shape[1:]) for part in parts))
        accepted = acceptance.walk(many, acceptance.sampled_choices(probs), longest)
        start = accepted.tokens_BW[:, 0].numpy()
        goes_on = (accepted.lengths_B > 1).numpy()
        assert 0.1 < goes_on.mean() < 0.999
        fresh = np.array([random.choice(vocabulary, p=second[token]) for token in start])
        then = np.where(goes_on, accepted.tokens_BW[:, 1].numpy(), fresh)
        seen = np.bincount(start * vocabulary + then, minlength=vocabulary**2)
        expected = (first[:, None] * second).ravel() * runs
        assert ((seen - expected) ** 2 / expected).sum() < 37.7  # 99.9 % of chi-square with 15 degrees of freedom


def test_a_token_without_probability_is_never_drawn_and_a_sure_one_always():
    torch.manual_seed(0)
    probs = torch.tensor([[[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]]).expand(2_000, -1, -1)
    drawn = acceptance.sampled_choices(probs)
    assert (drawn[:, 0] == 1).all()
    assert set(drawn[:, 1].tolist()) == {0, 2}


def test_min_p_keeps_what_is_near_the_best():
    probs = torch.tensor([[[0.5, 0.3, 0.2]], [[0.5, 0.3, 0.2]]])
    kept = acceptance.keep_likely(probs, torch.tensor([0.5, 0.0]))
    assert (kept > 0).tolist() == [[[True, True, False]], [[True, True, True]]]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_moves_put_the_path_in_a_row_in_any_chunks(seed):
    batch, _, longest = drafted(seed)
    accepted = acceptance.walk(batch, chosen(seed, batch), longest)
    shape = batch.tokens_BN.shape
    slots = torch.from_numpy(np.random.default_rng(seed).permutation(100)[: shape.numel()].reshape(shape))
    target, source = acceptance.moves(slots, accepted)
    for chunk in (3, len(target)):
        cache = torch.arange(100)
        for at in range(0, len(target), chunk):
            cache[target[at : at + chunk]] = cache[source[at : at + chunk]].clone()
        for request, path in enumerate(accepted.path_BW):
            length = int(accepted.lengths_B[request])
            assert cache[slots[request, :length]].tolist() == slots[request, path[:length]].tolist()


def test_a_stopped_walk_commits_one_token():
    batch, _, longest = drafted(3)
    choices = batch.tokens_BN.gather(1, torch.ones_like(batch.tokens_BN))
    stopped = acceptance.stop_at_root(acceptance.walk(batch, choices, longest))
    assert stopped.lengths_B.tolist() == [1] * 4
    assert stopped.lengths_B.dtype == torch.int32
    assert stopped.tokens_BW[:, 0].tolist() == choices[:, 0].tolist()


def test_mask_cells_are_those_of_nodes_behind_each_prefix():
    prefix, nodes = [5, 2, 7], 3
    cells = acceptance.mask_cells(torch.tensor(prefix), nodes)
    expected, start = [], 0
    for length in prefix:
        expected.append(
            [[start + row * (length + nodes) + length + node for node in range(nodes)] for row in range(nodes)]
        )
        start += nodes * (length + nodes)
    assert cells.tolist() == expected
    assert len(set(itertools.chain.from_iterable(itertools.chain.from_iterable(expected)))) == 27
