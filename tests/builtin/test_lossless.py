"""Speculation changes how fast a text comes, never the text."""

from collections import Counter

import numpy as np
import pytest

from ddtree_tune.builtin.decoder import Decoder, Part, Stream
from ddtree_tune.builtin.sampling import Sampler, Sampling
from tests.builtin.harness import LENGTH, NONE, chain, finish_all, replies_to, scheduler_of, tree

CONFIGURATIONS = {
    "chain": chain(),
    "chain of half a block": chain(block_size=8),
    "chain with a window": chain(window=16),
    "one node": tree(1, 1),
    "topk 1": tree(8, 1),
    "3/2": tree(3, 2),
    "8/4": tree(8, 4),
    "16/4/32": tree(16, 4, window=32),
    "31/8": tree(31, 8),
    "64/64": tree(64, 64),
    "12/4 of half a block": tree(12, 4, window=24, block_size=8),
}


@pytest.mark.parametrize("speculation", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_greedy_replies_equal_plain_decoding(pair, prompts, plain, speculation):
    assert replies_to(pair, speculation, prompts) == plain


@pytest.mark.parametrize("speculation", [NONE, chain(), tree(16, 4)], ids=["none", "chain", "tree"])
def test_greedy_replies_do_not_depend_on_the_batch(pair, prompts, plain, speculation):
    assert replies_to(pair, speculation, prompts * 2, slots=3) == plain * 2


@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_greedy_replies_do_not_depend_on_the_prefill_chunk(pair, prompts, plain, chunk):
    assert replies_to(pair, tree(8, 4), prompts, slots=2, chunk=chunk) == plain


def test_a_window_beyond_the_context_equals_no_window(pair, prompts):
    def accepted(window):
        scheduler = scheduler_of(pair, tree(8, 4, window=window))
        scheduler.submit(_job(prompts[0]))
        return finish_all(scheduler)["0"].accepted

    everything = accepted(None)
    assert sum(everything) > 0
    assert accepted(LENGTH) == everything
    assert accepted(16) != everything


@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.05}], ids=str)
def test_a_seed_gives_the_same_sampled_text_with_and_without_speculation(pair, prompts, options):
    options |= {"temperature": 1.2, "seed": 11, "max_tokens": 40}
    expected = replies_to(pair, NONE, prompts[:2], **options)
    assert expected != replies_to(pair, NONE, prompts[:2], max_tokens=40)
    for speculation in (chain(), tree(16, 4)):
        assert replies_to(pair, speculation, prompts[:2], **options) == expected


def test_tree_sampling_keeps_the_targets_distribution(pair, prompts):
    """Two-sample chi-square over the first three sampled tokens, after a question cut where much may follow."""
    plain = _sampled(pair, NONE, prompts[0][:6], seeds=range(250))
    drafted = _sampled(pair, tree(8, 4), prompts[0][:6], seeds=range(1000, 1250))
    common = [key for key, count in (plain + drafted).items() if count >= 12]
    table = np.array([[sample[key] for key in common] for sample in (plain, drafted)], float)
    table = np.column_stack([table, 250 - table.sum(1)])
    assert len(common) >= 4
    expected = table.sum(0) / 2
    statistic = ((table - expected) ** 2 / expected).sum()
    freedom = table.shape[1] - 1
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5  # four standard deviations


def _sampled(pair, speculation, prompt, seeds):
    """Count the first three tokens of replies with the given seeds."""
    target, drafter = pair
    decoder = Decoder(
        target, None if speculation is NONE else drafter, speculation, slots=1, length=len(prompt) + 4, chunk=64
    )
    counts = Counter()
    for seed in seeds:
        stream = Stream(0, Sampler(Sampling(3, temperature=1.5, seed=seed)), frozenset())
        decoder.read([Part(stream, prompt, last=True)])
        tokens = [stream.anchor]
        while len(tokens) < 3:
            tokens += decoder.step([stream])[0].tokens
        counts[tuple(tokens[:3])] += 1
    return counts


def _job(prompt):
    from ddtree_tune.builtin.scheduler import Job

    return Job("0", tuple(prompt), Sampling(60, temperature=0.0))
