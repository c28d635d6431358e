"""Traces of drafts for tests: made up, with ties, and the brute force that a replay must equal."""

import numpy as np

from ddtree_tune.core.draft_trace import DraftTrace, TracedRequest, TraceHeader
from ddtree_tune.core.tree import build_tree, walk


def request_of(rng, *, reply, depth, topk, after, levels=None, name="r"):
    """A reply over few tokens, drafted so that the target's token is often among the candidates.

    Log-probabilities are of a few levels only where ``levels`` is given: most of them tie.
    """
    vocab = topk + 2
    tokens = rng.integers(0, vocab, reply + after)
    candidates = np.asarray([[rng.permutation(vocab)[:topk] for _ in range(depth)] for _ in range(reply - 1)])
    for position in range(reply - 1):
        for at in range(depth):
            token = tokens[position + 1 + at] if position + 1 + at < len(tokens) else -1
            if token in candidates[position, at] and rng.random() < 0.7:
                rank = int(np.flatnonzero(candidates[position, at] == token)[0])
                better = int(rng.integers(0, rank + 1))
                candidates[position, at, [better, rank]] = candidates[position, at, [rank, better]]
    shape = (reply - 1, depth, topk)
    scores = -rng.integers(1, levels + 1, shape) if levels else -5 * rng.random(shape)
    log_probs = -np.sort(-scores.astype(np.float32), axis=-1)
    return TracedRequest(name, 60, "", 7, reply, tokens, candidates.reshape(shape), log_probs)


def trace_of(requests):
    _, depth, topk = requests[0].candidates.shape
    header = TraceHeader(target="t", drafter="d", block_size=depth + 1, window=None, topk=topk, dtype="float32")
    return DraftTrace(header, tuple(requests))


def run_by_hand(request, budget, topk):
    """Verify steps by accepted tokens: a tree is built and walked at every step, as an engine does."""
    depth = request.candidates.shape[1]
    last = len(request.tokens) - 1
    histogram = np.zeros(depth + 1, dtype=np.int64)
    at = 0
    while at < request.reply_tokens - 1:
        tree = build_tree([row[:topk] for row in request.log_probs[at].tolist()], budget)
        tokens = [int(request.candidates[at, d - 1, r]) for d, r in zip(tree.depths_N, tree.ranks_N, strict=True)]
        after = [at + 1 + d for d in (0, *tree.depths_N)]
        choices = [int(request.tokens[index]) if index <= last else -1 for index in after]
        accepted = min(len(walk(tree, tokens, choices)) - 1, last - at - 1)
        histogram[accepted] += 1
        at += 1 + accepted
    return histogram
