"""Where greedy text leaves the baseline's: the right character, and no token that is not known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.coding import Attempt, Chunks, Outcome, Reply
from ddtree_tune.core.divergence import common_prefix, first_difference, likeness

PLAIN = Attempt("p", "", Outcome.PASS, "", None, Reply("", None, "stop"), 4, None, 100, concurrency=8, temperature=0.0)


def said(text, *, chunks=None, reasoning=None, finish="stop", **changes):
    """A greedy reply; ``chunks`` are (characters, tokens) so far."""
    known = Chunks(*map(tuple, zip(*chunks, strict=True))) if chunks else None
    return replace(PLAIN, reply=Reply(text, reasoning, finish), chunks=known, **changes)


ONE_BY_ONE = [(2, 1), (4, 2), (6, 3), (8, 4)]
STEPS = [(4, 2), (8, 4)]
WIDE = [(8, 4)]


@pytest.mark.parametrize(
    ("base", "mine", "tokens"),
    [
        (ONE_BY_ONE, ONE_BY_ONE, (3, 3)),
        (ONE_BY_ONE, STEPS, (3, 3)),  # no speculation sends token by token: that says which one it is
        (STEPS, STEPS, (3, 4)),
        (WIDE, STEPS, (3, 4)),
        (WIDE, WIDE, (1, 4)),
        (None, STEPS, (3, 4)),
        (None, None, None),
        ([(5, 1), (8, 2)], [(4, 6), (8, 8)], (1, 8)),  # one of them held text back: both are covered
    ],
)
def test_the_token_is_known_to_within_the_narrower_chunk(base, mine, tokens):
    found = first_difference(said("abcdefgh", chunks=base), said("abcdXfgh", chunks=mine))
    assert (found.problem_id, found.concurrency, found.char) == ("p", 8, 4)
    assert found.tokens == tokens


def test_equal_text_does_not_differ_and_reasoning_counts():
    assert first_difference(said("abc"), said("abc", chunks=WIDE)) is None
    assert first_difference(said("c", reasoning="ab"), said("d", reasoning="ab")).char == 2


def test_a_reply_that_stopped_earlier_differs_at_its_end_and_one_that_was_cut_does_not():
    assert first_difference(said("abcdefgh", chunks=ONE_BY_ONE), said("abcd", chunks=[(4, 2)])).tokens == (3, 3)
    assert first_difference(said("abcdefgh"), said("abcd", finish="length")) is None
    assert first_difference(said("abcd", finish="length"), said("abcdefgh")) is None
    assert first_difference(said("abcdefgh"), said("abcX", finish="length")).char == 3


def test_the_earliest_of_all_is_named_and_the_same_ones_are_counted():
    base = [said("abcdefgh", chunks=STEPS, problem_id=name) for name in "pqrs"]
    mine = [
        said("abcdefgX", chunks=STEPS, problem_id="p"),
        said("abXdefgh", chunks=STEPS, problem_id="q"),
        said("abcdefgh", chunks=STEPS, problem_id="r"),
    ]
    found = likeness(base, mine)
    assert (found.compared, found.same) == (3, 1)
    assert (found.earliest.problem_id, found.earliest.tokens) == ("q", (1, 2))
    assert likeness(base, base).earliest is None


def test_only_greedy_replies_to_the_same_question_that_came_whole_are_compared():
    base = [said("abc")]
    assert likeness(base, [said("abX", concurrency=1)]) is None
    assert likeness(base, [said("abX", sample=1)]) is None
    assert likeness(base, [said("abX", temperature=0.7)]) is None
    assert likeness(base, [said("abX", temperature=None)]) is None
    assert likeness(base, [replace(PLAIN, reply=Reply("a", None, None, "closed: gone"))]) is None
    assert likeness([], [said("abX")]) is None


@given(st.text(max_size=30), st.text(max_size=10), st.text(max_size=10))
def test_a_common_prefix_is_the_longest(start, one, other):
    at = common_prefix(start + one, start + other)
    assert at >= len(start)
    assert (start + one)[:at] == (start + other)[:at]
    assert (start + one)[: at + 1] != (start + other)[: at + 1] or min(len(one), len(other)) + len(start) == at


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.data(),
)
def test_the_true_token_always_lies_within(base_steps, my_steps, data):
    """Tokens of two characters, streamed in steps; one of the tokens both have is another."""
    total = min(sum(base_steps), sum(my_steps))
    token = data.draw(st.integers(1, total))
    texts = ["ab" * sum(base_steps), "ab" * (token - 1) + "aX" + "ab" * (sum(my_steps) - token)]
    chunks = [[(2 * sum(s[: i + 1]), sum(s[: i + 1])) for i in range(len(s))] for s in (base_steps, my_steps)]
    found = first_difference(said(texts[0], chunks=chunks[0]), said(texts[1], chunks=chunks[1]))
    assert found.tokens.first <= token <= found.tokens.last
