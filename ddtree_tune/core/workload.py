"""What load a trial carries: cells of contexts by arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
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


class Ends(StrEnum):
    """What ends a reply."""

    FIXED = "fixed"
    """Its length alone, whatever the model says: arms do equal work."""
    NATURAL = "natural"
    """The model's own end, within a limit: what users run."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One shape of load."""

    context: int
    """Prompt tokens by the server's own count, chat template included."""
    output_tokens: int
    """Tokens of every reply; with natural ends, of the longest."""
    arrival: Arrival
    window_s: float
    """Least length of the measured window, in seconds."""
    warmup_waves: int = 1
    """Full waves of other prompts before the window opens."""
    min_requests: int = 0
    """The window stays open until as many requests sent in it have ended, up to ``4 * window_s``."""
    ends: Ends = Ends.FIXED
    temperature: float = 0.0
    """0 is greedy; else every request has a seed of its own, the same for all arms."""
    top_p: float = 1.0

    @property
    def cell_id(self) -> str:
        """Names the shape, as in ``chat_i512_o96_c8``, or ``chat_i512_max96_c8`` with natural ends."""
        output = "o" if self.ends is Ends.FIXED else "max"
        return f"chat_i{self.context}_{output}{self.output_tokens}_{self.arrival.key}"

    @property
    def concurrency(self) -> int | None:
        """Requests in flight of a closed loop."""
        return self.arrival.concurrency if isinstance(self.arrival, ClosedLoop) else None

    @property
    def prompt_tolerance(self) -> float:
        """Tokens by which a prompt may miss the context: 2 %, or 8 where that would be less."""
        return max(8.0, 0.02 * self.context)


RECOMMENDED = {Ends.FIXED: (0.0, 1.0), Ends.NATURAL: (1.0, 0.95)}
"""Temperature and top_p where none are given: greedy work that can be compared token by token, or
what the makers of thinking models advise."""


def load_matrix(
    contexts: Iterable[int],
    concurrency: Iterable[int] = (),
    *,
    rates_rps: Iterable[float] = (),
    output_tokens: int,
    window_s: float,
    min_requests: int = 0,
    ends: Ends = Ends.FIXED,
    temperature: float | None = None,
    top_p: float | None = None,
) -> tuple[Cell, ...]:
    """Every context at every concurrency and every rate, cheapest first.

    Args:
        contexts: prompt lengths in tokens.
        concurrency: requests in flight of the closed loops.
        rates_rps: mean arrivals of the open loops.
        output_tokens: of every reply, or of the longest.
        window_s: least measured time.
        min_requests: see ``Cell``.
        ends: what ends a reply.
        temperature: that of ``RECOMMENDED`` when None.
        top_p: that of ``RECOMMENDED`` when None.

    Returns:
        One cell per pair, ordered by context, closed loops before open ones.
    """
    arrivals: list[Arrival] = [ClosedLoop(users) for users in sorted(set(concurrency))]
    arrivals += [OpenLoop(rate) for rate in sorted(set(rates_rps))]
    usual = RECOMMENDED[ends]
    return tuple(
        Cell(
            context,
            output_tokens,
            arrival,
            window_s,
            min_requests=min_requests,
            ends=ends,
            temperature=usual[0] if temperature is None else temperature,
            top_p=usual[1] if top_p is None else top_p,
        )
        for context in sorted(set(contexts))
        for arrival in arrivals
    )
