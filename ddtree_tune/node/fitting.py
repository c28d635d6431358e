"""How much of a text makes a prompt of the asked length, by few counts of the server's."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.counting import Counter

_CUTS = 8
"""Counts before a text is given up."""


@dataclass(frozen=True, slots=True)
class Divisible:
    """A text that can be taken in pieces, such as lines."""

    pieces: Sequence[str]
    """In the order in which they are taken."""
    whole: Callable[[int], str]
    """The prompt with the first so many pieces."""
    empty: int
    """Tokens of the prompt without any."""
    kind: str
    """Names the text for `Counter`."""


class Fit(NamedTuple):
    """A prompt of the right length."""

    text: str
    tokens: int


async def fit(cell: Cell, text: Divisible, counter: Counter) -> Fit | None:
    """Take as many pieces as make the prompt of the cell's length, at least one; None if none do."""
    ends = np.fromiter(accumulate(map(len, text.pieces)), dtype=np.int64)
    density = await counter.density(text.kind)
    low, high = 0, len(ends) + 1
    for _ in range(_CUTS):
        if high - low < 2:
            break
        wanted = (cell.context - text.empty) / density
        taken = int(np.clip(np.argmin(np.abs(ends - wanted)) + 1, low + 1, high - 1))
        prompt = text.whole(taken)
        tokens = await counter.count(prompt, text.kind)
        if abs(tokens - cell.context) <= cell.prompt_tolerance:
            return Fit(prompt, tokens)
        low, high = (taken, high) if tokens < cell.context else (low, taken)
        density = max(tokens - text.empty, 1) / int(ends[taken - 1])
    return None
