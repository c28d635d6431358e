"""The head, its shards, and trees in kept buffers, on the CPU."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
drafting = pytest.importorskip("ddtree_tune.sglang_plugin.drafting")
knobs = pytest.importorskip("ddtree_tune.sglang_plugin.knobs")
trees = pytest.importorskip("ddtree_tune.sglang_plugin.trees")

ALONE = SimpleNamespace(world_size=1)


def lm_head(rows=40, hidden=8, **shard):
    torch.manual_seed(1)
    weight = torch.randn(rows + 3, hidden)  # padding rows behind the vocabulary, as SGLang has them
    indices = {"num_org_elements": rows, "num_added_elements": 0, "org_vocab_start_index": 0} | shard
    return SimpleNamespace(weight=weight, shard_indices=SimpleNamespace(**indices))


def test_candidates_are_the_best_of_the_softmax(monkeypatch):
    head, hidden = lm_head(), torch.randn(9, 8)
    whole = torch.log_softmax(hidden @ head.weight[:40].T, -1)
    for chunk in (1 << 28, 4 * 40 * 2):
        monkeypatch.setattr(drafting, "_CHUNK_BYTES", chunk)
        log_probs, tokens = drafting.DraftHead(head, 5, ALONE).top(hidden)
        expected = whole.topk(5, -1)
        torch.testing.assert_close(log_probs, expected.values)
        assert tokens.tolist() == expected.indices.tolist()


def test_shards_together_are_the_whole_vocabulary():
    logits = torch.randn(6, 40)
    parts = [
        (part.topk(5, -1), start, part.logsumexp(-1)) for start, part in ((0, logits[:, :30]), (30, logits[:, 30:]))
    ]
    log_probs, tokens = drafting.merge_shards(
        torch.stack([top.values for top, _, _ in parts]),
        torch.stack([top.indices + start for top, start, _ in parts]),
        torch.stack([total for _, _, total in parts]),
        5,
    )
    expected = torch.log_softmax(logits, -1).topk(5, -1)
    torch.testing.assert_close(log_probs, expected.values)
    assert tokens.tolist() == expected.indices.tolist()


@pytest.mark.parametrize(
    ("head", "topk", "says"),
    [
        (None, 4, "lm_head is a floating-point matrix, but got NoneType"),
        (SimpleNamespace(weight=torch.zeros(3, 3, dtype=torch.int8)), 4, "but got torch.int8"),
        (lm_head(num_added_elements=2), 4, "no added tokens"),
        (lm_head(), 41, "at most a rank's 40 tokens, but got 41"),
    ],
)
def test_a_head_that_cannot_be_read_is_refused(head, topk, says):
    with pytest.raises(ValueError, match=says):
        drafting.DraftHead(head, topk, ALONE)


@pytest.mark.parametrize(("budget", "candidates"), [(9, True), (9, False), (2, False)])
def test_a_call_leaves_the_trees_of_its_requests_in_the_same_buffers(budget, candidates):
    block, topk, requests = 4, 3, 2
    head = drafting.DraftHead(lm_head(), topk, ALONE)
    asked = knobs.Knobs(budget, topk, block)
    drafter = drafting.TreeDrafter(head, asked, 5, "cpu", times=None, candidates=candidates)
    before = drafter.trees(requests).tokens_BN
    hidden, ids = torch.randn(requests * block, 8), torch.arange(requests * block)
    drafter(hidden, ids)
    log_probs, tokens = head.top(hidden.view(requests, block, 8)[:, 1:].flatten(0, 1))
    log_probs, tokens = log_probs.view(requests, 3, topk), tokens.view(requests, 3, topk)
    expected, kept = trees.Trees.empty(requests, budget + 1, "cpu"), drafter.trees(requests)
    trees.build_trees(log_probs, tokens, torch.tensor([0, 4]), expected)
    assert kept.tokens_BN.tolist() == expected.tokens_BN.tolist() == before.tolist()
    assert kept.parents_BN.tolist() == expected.parents_BN.tolist()
    assert kept.depths_BN.tolist() == expected.depths_BN.tolist()
    if candidates:
        assert [one.tolist() for one in drafter.candidates(requests)] == [
            trees.costs_of(log_probs).tolist(),
            tokens.tolist(),
        ]
    else:
        with pytest.raises(RuntimeError, match="must be kept"):
            drafter.candidates(requests)
