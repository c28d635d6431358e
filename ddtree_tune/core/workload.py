"""What load a trial carries: cells of contexts by arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A constant number of requests in flight."""

    concurrency: int

    @property
    def key(self) -> str:
        """Short name in a cell id."""
        return f"c{self.concurrency}"


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Poisson arrivals at a mean rate."""

    rate_rps: float

    @property
    def key(self) -> str:
        """Short name in a cell id."""
        return f"r{self.rate_rps:g}"


Arrival: TypeAlias = ClosedLoop | OpenLoop


@dataclass(frozen=True, slots=True)
class Cell:
    """One shape of load."""

    context: int
    """Prompt tokens by the server's own count, chat template included."""
    output_tokens: int
    """Tokens every request generates; generation does not stop at the end-of-text token."""
    arrival: Arrival
    window_s: float
    """Least length of the measured window, in seconds."""
    warmup_waves: int = 1
    """Full waves of other prompts before the window opens."""
    min_requests: int = 0
    """The window stays open until as many requests sent in it have ended, up to ``4 * window_s``."""

    @property
    def cell_id(self) -> str:
        """Names the shape, as in ``chat_i512_o96_c8``."""
        return f"chat_i{self.context}_o{self.output_tokens}_{self.arrival.key}"

    @property
    def concurrency(self) -> int | None:
        """Requests in flight of a closed loop."""
        return self.arrival.concurrency if isinstance(self.arrival, ClosedLoop) else None

    @property
    def prompt_tolerance(self) -> float:
        """Tokens by which a prompt may miss the context: 2 %, or 8 where that would be less."""
        return max(8.0, 0.02 * self.context)


def load_matrix(
    contexts: Iterable[int], concurrency: Iterable[int], *, output_tokens: int, window_s: float, min_requests: int = 0
) -> tuple[Cell, ...]:
    """Every context at every concurrency, cheapest first.

    Returns:
        One closed-loop cell per pair, ordered by context and then concurrency.
    """
    return tuple(
        Cell(context, output_tokens, ClosedLoop(users), window_s, min_requests=min_requests)
        for context in sorted(set(contexts))
        for users in sorted(set(concurrency))
    )
