"""The replay of a trace is what the engine does, request by request and step by step."""

import numpy as np
import pytest

from ddtree_tune.builtin.sampling import Sampling
from ddtree_tune.builtin.scheduler import Job
from ddtree_tune.builtin.tracer import Tracer
from ddtree_tune.core.draft_trace import DraftTrace, TraceHeader
from ddtree_tune.core.replay import replay, replay_chain
from tests.builtin.harness import chain, finish_all, scheduler_of, tree

TOPK = 8
BLOCK = 16


def trace_of(pair, prompts, *, max_tokens, window=None, ignore_eos=False, block_size=BLOCK):
    tracer = Tracer(*pair, window=window, topk=TOPK, block_size=block_size)
    header = TraceHeader(target="t", drafter="d", block_size=block_size, window=window, topk=TOPK, dtype="float32")
    asked = {"ignore_eos": ignore_eos, "context": None, "family": ""}
    return DraftTrace(header, tuple(tracer.trace(p, max_tokens, name=str(i), **asked) for i, p in enumerate(prompts)))


def accepted_by_request(pair, speculation, prompts, *, max_tokens, ignore_eos=False):
    """What the engine itself counts for each request, three at once."""
    scheduler = scheduler_of(pair, speculation, slots=3)
    for index, prompt in enumerate(prompts):
        scheduler.submit(Job(str(index), tuple(prompt), Sampling(max_tokens, temperature=0.0, ignore_eos=ignore_eos)))
    replies = finish_all(scheduler)
    finished = [replies[str(index)] for index in range(len(prompts))]
    depth = speculation.block_size - 1
    return finished, np.asarray([np.bincount(one.accepted, minlength=depth + 1) for one in finished])


@pytest.mark.parametrize("window", [None, 24])
def test_every_step_of_every_request_is_replayed(pair, prompts, window):
    prompts = prompts[:3]
    trace = trace_of(pair, prompts, max_tokens=28, window=window, ignore_eos=True)
    for budget, topk in ((4, 2), (31, 8)):
        speculation = tree(budget, topk, window=window)
        replies, histograms = accepted_by_request(pair, speculation, prompts, max_tokens=28, ignore_eos=True)
        for request, reply in zip(trace.requests, replies, strict=True):
            assert request.tokens[: request.reply_tokens].tolist() == reply.tokens
        np.testing.assert_array_equal(replay(trace, (budget,), (topk,)).histograms[:, 0, 0], histograms)


def test_a_reply_that_ends_by_itself_is_replayed_to_its_last_step(pair, prompts):
    trace = trace_of(pair, prompts[:2], max_tokens=200)
    replies, histograms = accepted_by_request(pair, tree(16, 4), prompts[:2], max_tokens=200)
    assert {reply.finish for reply in replies} == {"stop"}
    np.testing.assert_array_equal(replay(trace, (16,), (4,)).histograms[:, 0, 0], histograms)


def test_the_plain_chain_is_replayed_at_a_smaller_block(pair, prompts):
    trace = trace_of(pair, prompts[:2], max_tokens=32, block_size=8)
    _, histograms = accepted_by_request(pair, chain(block_size=8), prompts[:2], max_tokens=32)
    assert histograms.shape == (2, 8)
    np.testing.assert_array_equal(replay_chain(trace).histograms[:, 0, 0], histograms)


def test_a_tracer_that_was_used_traces_the_same_again(pair, prompts):
    once = trace_of(pair, [prompts[1]], max_tokens=24)
    later = trace_of(pair, [prompts[0], prompts[1]], max_tokens=24)
    np.testing.assert_array_equal(once.requests[0].log_probs, later.requests[1].log_probs)
    np.testing.assert_array_equal(once.requests[0].candidates, later.requests[1].candidates)
    assert once.requests[0].log_probs.shape == (23, BLOCK - 1, TOPK)
