"""Where the greedy text of a setting leaves that of no speculation.

Verification must not change greedy text, so the first token that differs is where to look for a
fault. Batches of another size round differently and may flip a token without one: replies are
compared only with those that were asked at the same concurrency.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ddtree_tune.core.coding import latest
from ddtree_tune.core.judge import is_cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddtree_tune.core.coding import Attempt


class Tokens(NamedTuple):
    """Which token of a reply it is, from 1: a chunk carries several, so it lies between two."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of one reply from the baseline's."""

    problem_id: str
    concurrency: int | None
    char: int
    """Characters of equal text before it."""
    tokens: Tokens | None
    """None where neither server counted tokens chunk by chunk."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """The greedy replies of one setting beside those of no speculation to the same questions."""

    compared: int
    same: int
    earliest: Divergence | None
    """The earliest of all; None if there is no difference."""


def likeness(base: Iterable[Attempt], mine: Iterable[Attempt]) -> Likeness | None:
    """Compare greedy replies; None where there are no two to compare.

    A reply that the token limit cut is the same as another as far as it goes.

    Args:
        base: attempts of no speculation.
        mine: attempts of the setting.
    """
    known = {one.key: one for one in latest(base) if _comparable(one)}
    pairs = [(known[one.key], one) for one in latest(mine) if _comparable(one) and one.key in known]
    found = [one for pair in pairs if (one := first_difference(*pair)) is not None]
    earliest = min(found, key=lambda one: (one.tokens or Tokens(one.char, one.char), one.char), default=None)
    return Likeness(len(pairs), len(pairs) - len(found), earliest) if pairs else None


def first_difference(base: Attempt, mine: Attempt) -> Divergence | None:
    """Where two replies to one question part; None if they are the same."""
    theirs, ours = base.reply.said, mine.reply.said
    char = common_prefix(theirs, ours)
    shorter = base if len(theirs) < len(ours) else mine
    if char == len(shorter.reply.said) and (theirs == ours or is_cut(shorter.reply)):
        return None
    return Divergence(mine.problem_id, mine.concurrency, char, _tokens(base, mine, char))


def common_prefix(one: str, other: str) -> int:
    """Characters that two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _comparable(attempt: Attempt) -> bool:
    return attempt.greedy and attempt.reply.error is None and attempt.reply.finish_reason is not None


def _tokens(base: Attempt, mine: Attempt, char: int) -> Tokens | None:
    """The token, from both replies' chunks: without speculation a chunk is often one token.

    A server may hold text back until it is sure of a character. Then the two may contradict each
    other, and what is said covers both.
    """
    spans = [span for one in (base, mine) if (span := _span(one, char)) is not None]
    if not spans:
        return None
    first, last = max(span.first for span in spans), min(span.last for span in spans)
    if first > last:
        first, last = min(span.first for span in spans), max(span.last for span in spans)
    return Tokens(first, last)


def _span(attempt: Attempt, char: int) -> Tokens | None:
    """The tokens of the chunk that holds a character; None for the end of a reply, or without counts."""
    chunks = attempt.chunks
    if chunks is None:
        return None
    at = bisect_right(chunks.chars, char)
    if at == len(chunks.chars):
        return None
    before = chunks.tokens[at - 1] if at else 0
    return Tokens(before + 1, max(chunks.tokens[at], before + 1))
