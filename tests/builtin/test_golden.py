"""The NumPy models against other implementations of the same weights."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from ddtree_tune.builtin.buffers import Span
from ddtree_tune.builtin.layers import SAFE_SCORE, causal_mask, score_bound
from ddtree_tune.builtin.models import Drafter, Limits, Target
from tests.builtin.harness import PAIR, chain

GOLDEN = Path(__file__).parent / "golden" / "logits.npz"
TOLERANCE = 1e-3
"""Largest difference of a score; scores of the pair span tens."""


@pytest.fixture(scope="module")
def models(pair):
    """Target and drafter for one sequence of up to 1024 tokens, read in chunks of up to 300."""
    weights, draft_weights = pair
    limits = Limits(slots=1, length=1024, chunk=300, width=17)
    return Target(weights, limits), Drafter(draft_weights, weights, chain(), limits)


def results_of(models, ids, anchor, windows):
    """Scores of the last 8 positions, tapped states of the last 2, and the block's scores per window."""
    target, drafter = models
    logits, taps = [], []
    for start in range(0, len(ids), 300):
        chunk = ids[start : start + 300]
        positions = np.arange(start, start + len(chunk))
        span = Span(0, 0, len(chunk), start, mask=causal_mask(len(chunk)))
        hidden, features = target.forward(chunk, positions, [span], drafter.taps)
        drafter.extend(features, positions, [span])
        logits += [target.logits(row[None])[0].copy() for row in hidden[-8:]]
        taps += list(features[-2:])
    drafts = [drafter.draft([0], [anchor], [len(ids)], chain(window))[0].copy() for window in windows]
    return np.array(logits[-8:]), np.array(taps[-2:]), drafts


def assert_equal(got, expected):
    assert got.shape == expected.shape
    assert np.ptp(expected) > 1
    assert np.abs(got - expected).max() < TOLERANCE


@pytest.mark.parametrize("prompt", range(3))
def test_scores_equal_the_kept_reference(models, prompt):
    kept = np.load(GOLDEN)
    ids, anchor = kept[f"{prompt}_ids"], int(kept[f"{prompt}_anchor"])
    logits, taps, (everything, windowed) = results_of(models, ids, anchor, (None, 64))
    assert_equal(logits, kept[f"{prompt}_logits"])
    assert int(logits[-1].argmax()) == anchor
    assert_equal(taps, kept[f"{prompt}_taps"])
    assert_equal(everything, kept[f"{prompt}_draft_none"])
    assert_equal(windowed, kept[f"{prompt}_draft_64"])


def test_scores_equal_torchs(models, prompts):
    torch = pytest.importorskip("torch", reason="needs torch")
    from ddtree_tune.builtin.train.export import load_pair

    target, drafter = load_pair(PAIR)
    ids = np.array(prompts[0] * 4)
    with torch.no_grad(), warnings.catch_warnings():
        hidden = target(torch.from_numpy(ids)[None])
        scores = target.logits(hidden.last)[0]
        anchor = scores[-1].argmax()
        block = drafter(
            hidden.taps, target.embed(anchor)[None, None], torch.tensor([[len(ids)]]), target.shape.block, None
        )
        drafted = (block @ target.lm_head.weight.T)[0, 0, 1:]
    logits, taps, (everything,) = results_of(models, ids, int(anchor), (None,))
    assert_equal(logits, scores[-8:].numpy())
    assert_equal(taps, hidden.taps[0, -2:].numpy())
    assert_equal(everything, drafted.numpy())


def test_a_softmax_without_maximum_gives_the_same(pair, models, prompts):
    """The pair's scores are bounded far below overflow; a model that is not takes the other way."""
    target, _ = models
    layers, config = pair[0].layers, pair[0].config
    assert max(score_bound(layer, config.num_attention_heads) for layer in layers) < SAFE_SCORE
    ids = np.array(prompts[1])
    span = Span(0, 0, len(ids), 0, mask=causal_mask(len(ids)))
    bounded, _ = target.forward(ids, np.arange(len(ids)), [span])
    target._stack._safe = [False] * len(layers)
    try:
        subtracted, _ = target.forward(ids, np.arange(len(ids)), [span])
    finally:
        target._stack._safe = [True] * len(layers)
    assert np.abs(bounded - subtracted).max() < TOLERANCE
