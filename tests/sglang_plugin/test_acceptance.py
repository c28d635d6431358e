"""The walk and what follows from it: the reference's path, and the target's distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core import tree as reference
from tests.sglang_plugin.drafts import draft

torch = pytest.importorskip("torch")
trees = pytest.importorskip("ddtree_tune.sglang_plugin.trees")
acceptance = pytest.importorskip("ddtree_tune.sglang_plugin.acceptance")

REQUESTS, DEPTH, BUDGET, VOCABULARY = 4, 4, 9, 5
SEED_OF_A_LONG_PATH = 51


def walked(seed, *, deepest=DEPTH):
    """A walk over a vocabulary so small that the target often agrees; its draft, choices, slots and prefix."""
    drafted = draft(seed, (REQUESTS, DEPTH, 3), vocabulary=VOCABULARY)
    random = np.random.default_rng(seed)
    choices = torch.from_numpy(random.integers(0, VOCABULARY, (REQUESTS, BUDGET + 1)))
    slots = torch.from_numpy(random.permutation(100)[: choices.numel()].reshape(choices.shape))
    prefix = torch.from_numpy(random.integers(0, 50, REQUESTS)).int()
    accepted = acceptance.walk(drafted.built(BUDGET), choices, slots, prefix, longest=DEPTH + 1, deepest=deepest)
    return drafted, choices, slots, prefix, accepted


@settings(deadline=None, max_examples=16)
@given(st.integers(0, 2**32 - 1))
def test_the_walk_is_the_references(seed):
    drafted, choices, slots, prefix, accepted = walked(seed)
    for request, (tree, tokens) in enumerate(drafted.expected(BUDGET)):
        path = list(reference.walk(tree, tokens, choices[request].tolist()))
        length = int(accepted.lengths_B[request])
        assert length == len(path)
        assert accepted.ends_B[request] == prefix[request] + length
        assert accepted.tokens_BW[request, :length].tolist() == choices[request, path].tolist()
        assert accepted.bonus_B[request] == choices[request, path[-1]]
        assert accepted.targets_BW[request].tolist() == slots[request, : DEPTH + 1].tolist()
        behind = slots[request, length : DEPTH + 1].tolist()
        assert accepted.sources_BW[request].tolist() == [*slots[request, path].tolist(), *behind]
        rows = [request * (BUDGET + 1) + node for node in path]
        assert accepted.rows_BW[request, :length].tolist() == rows
        assert (accepted.rows_BW[request, length:] == request * (BUDGET + 1)).all()
        assert accepted.positions_BW[request].tolist() == [int(prefix[request]) + at for at in range(DEPTH + 1)]
    assert accepted.ends_B.dtype == prefix.dtype
    assert accepted.lengths_B.dtype == torch.int32


@pytest.mark.parametrize("deepest", [0, 1, 2])
def test_a_walk_that_is_stopped_commits_no_more(deepest):
    *_, prefix, whole = walked(SEED_OF_A_LONG_PATH)
    stopped = walked(SEED_OF_A_LONG_PATH, deepest=deepest)[-1]
    assert whole.lengths_B.max() > deepest + 1
    assert stopped.lengths_B.tolist() == whole.lengths_B.clamp(max=deepest + 1).tolist()
    last = (stopped.lengths_B - 1).long()[:, None]
    assert stopped.bonus_B.tolist() == whole.tokens_BW.gather(1, last).squeeze(1).tolist()
    assert stopped.ends_B.tolist() == (prefix + stopped.lengths_B).tolist()


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_moves_put_the_path_in_a_row_in_any_chunks(seed):
    drafted, choices, slots, _, accepted = walked(seed)
    target, source = accepted.targets_BW.view(-1), accepted.sources_BW.view(-1)
    for chunk in (3, len(target)):
        cache = torch.arange(100)
        for at in range(0, len(target), chunk):
            cache[target[at : at + chunk]] = cache[source[at : at + chunk]].clone()
        for request, (tree, tokens) in enumerate(drafted.expected(BUDGET)):
            path = list(reference.walk(tree, tokens, choices[request].tolist()))
            assert cache[slots[request, : len(path)]].tolist() == slots[request, path].tolist()


def test_sampled_text_has_the_targets_distribution_whatever_the_tree():
    """Chi-square over the first two tokens of 20 000 walks in two trees, against the exact products."""
    random = np.random.default_rng(11)
    vocabulary, runs, depth = 4, 20_000, 2
    first, second = random.dirichlet(np.ones(vocabulary)), random.dirichlet(np.ones(vocabulary), vocabulary)
    torch.manual_seed(5)
    for seed in (1, 2):
        drafted = draft(seed, (1, depth, 2), vocabulary=vocabulary)
        ((tree, tokens),) = drafted.expected(5)
        rows = [first, *(second[tokens[node]] if at == 1 else first for node, at in enumerate(tree.depths_N))]
        probs = torch.tensor(np.stack(rows), dtype=torch.float32).expand(runs, -1, -1)
        start, then = [], []
        for choices in acceptance.sampled_choices(probs).tolist():
            path = reference.walk(tree, tokens, choices)
            start.append(choices[0])
            then.append(choices[path[1]] if len(path) > 1 else random.choice(vocabulary, p=second[choices[0]]))
        children = {token for token, parent in zip(tokens, tree.parents_N, strict=True) if parent == 0}
        assert 0.1 < np.mean([word in children for word in start]) < 0.999
        seen = np.bincount(np.array(start) * vocabulary + then, minlength=vocabulary**2)
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
