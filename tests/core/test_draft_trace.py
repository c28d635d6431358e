"""A trace of drafts: written and read without loss, and refused in one sentence where it is wrong."""

import json

import numpy as np
import pytest

from ddtree_tune.core.draft_trace import read_trace, trace_lines
from ddtree_tune.core.errors import SpecError
from tests.drafts import request_of, trace_of


@pytest.fixture
def lines():
    rng = np.random.default_rng(1)
    requests = [request_of(rng, reply=5, depth=2, topk=3, after=2, name=name) for name in "ab"]
    return list(trace_lines(trace_of(requests)))


def test_what_was_written_is_read_bit_for_bit(lines):
    rng = np.random.default_rng(1)
    written = [request_of(rng, reply=5, depth=2, topk=3, after=2, name=name) for name in "ab"]
    trace = read_trace([*lines[:2], "", lines[2]], "t")
    assert trace.header.depth == 2
    assert [request.request_id for request in trace.requests] == ["a", "b"]
    for one, other in zip(trace.requests, written, strict=True):
        np.testing.assert_array_equal(one.log_probs, other.log_probs)
        np.testing.assert_array_equal(one.candidates, other.candidates)
        np.testing.assert_array_equal(one.tokens, other.tokens)
        assert one.log_probs.dtype == np.float32
    assert list(trace_lines(trace)) == lines


def test_requests_are_parted_by_context(lines):
    changed = json.loads(lines[2]) | {"context": 512}
    parts = read_trace([*lines[:2], json.dumps(changed)], "t").by_context()
    assert {context: part.requests[0].request_id for context, part in parts.items()} == {60: "a", 512: "b"}


def changed(**fields):
    return lambda request: request | fields


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (changed(reply_tokens=9), "t:2: tokens must hold the 9 of the reply, but got 7"),
        (changed(candidates=[]), "t:2: candidates must be drafted at 4 positions, one less than the reply's tokens"),
        (changed(log_probs=[[[-1.0] * 3] * 2] * 3), "t:2: log_probs must be drafted at 4 positions"),
        (changed(log_probs=[[[-1.0] * 2] * 2] * 4), "t:2: log_probs must hold 2 depths of 3 candidates"),
        (changed(candidates=[[[1, 2, 3]]] * 4), "t:2: candidates must hold 2 depths of 3 candidates"),
        (changed(candidates=[[[1, 2, 1]] * 2] * 4), "t:2: the candidates of a depth must differ"),
        (changed(log_probs=[[[-2.0, -1.0, -3.0]] * 2] * 4), "t:2: log_probs of a depth must descend"),
        (changed(log_probs=[[[0.5, -1.0, -3.0]] * 2] * 4), r"t:2: log_probs\[0\]\[0\]\[0\]: input should be less"),
        (changed(tokens=[1, 2, 3, 4, -1]), r"t:2: tokens\[4\]: input should be greater than or equal to 0"),
        (changed(extra=1), "t:2: a line must not have the unknown key 'extra'"),
        (changed(prompt_tokens="7"), "t:2: prompt_tokens: input should be a valid integer, but got '7'"),
    ],
    ids=str,
)
def test_a_wrong_request_is_one_sentence(lines, change, sentence):
    broken = [lines[0], json.dumps(change(json.loads(lines[1]))), lines[2]]
    with pytest.raises(SpecError, match=sentence) as caught:
        read_trace(broken, "t")
    assert "\n" not in str(caught.value)


def test_a_wrong_file_is_one_sentence(lines):
    for broken, sentence in (
        ([], "t: a trace must hold a header and a request with a draft, but got none"),
        (lines[:1], "t: a trace must hold a header and a request"),
        (lines[1:], "t:1: "),
        (["{"], "t:1: "),
        ([lines[0].replace('"version":1', '"version":2'), lines[1]], "t:1: version: input should be 1, but got 2"),
        ([*lines, lines[1]], "t:4: request_id must be unique, but got 'a' again"),
    ):
        with pytest.raises(SpecError, match=sentence) as caught:
            read_trace(broken, "t")
        assert "\n" not in str(caught.value)
