"""What a sweep is to be good at: which goals, how much each cell counts, and what a user must not wait for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, field_validator, model_validator

from ddtree_tune.core.fields import Positive, Seconds, Strict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddtree_tune.core.workload import Cell

P95_REQUESTS = 20
"""Requests without which a 95th percentile is not known, see `stats.percentile`."""


class Goal(StrEnum):
    """What a sweep may be after."""

    SPEEDUP = "speedup"
    """Many output tokens per second."""
    TTFT = "ttft_p95"
    """A short time to first token, 95th percentile."""
    TPOT = "tpot_p95"
    """A short time per output token, 95th percentile."""
    SOLVED = "pass_rate"
    """Many coding problems solved."""


class Where(Strict):
    """Cells of the load matrix, by what is given of them; all of them where nothing is."""

    context: Positive | None = None
    """Prompt tokens; every context when absent."""
    concurrency: Positive | None = None
    """Requests in flight; every concurrency when absent."""

    def holds(self, cell: Cell) -> bool:
        """Whether a cell is one of them."""
        return self.context in {None, cell.context} and self.concurrency in {None, cell.concurrency}

    @property
    def words(self) -> str:
        """The choice as an error names it."""
        given = {"context": self.context, "concurrency": self.concurrency}
        return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or "every cell"


class Weight(Where):
    """How much some cells count."""

    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Factor on their share of the score, in which every cell has 1 to begin with; 0 leaves them out of it."""


class Slo(Where):
    """What a user must not wait for in some cells; a setting that breaks it is never recommended."""

    ttft_p95_s: Seconds | None = None
    """Most that the 95th percentile of the time to first token may be."""
    tpot_p95_s: Seconds | None = None
    """Most that the 95th percentile of the time per output token may be."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if not self.limits:
            raise ValueError("ttft_p95_s or tpot_p95_s must be given, but got neither")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """Seconds by the summary of a cell that they limit."""
        given = {"ttft_s": self.ttft_p95_s, "tpot_s": self.tpot_p95_s}
        return {name: limit for name, limit in given.items() if limit is not None}


class ObjectiveSpec(Strict):
    """What the score is made of and what bounds it."""

    goals: Annotated[tuple[Annotated[Goal, Field(strict=False)], ...], Field(strict=False)] = (Goal.SPEEDUP,)
    """Of ``speedup``, ``ttft_p95``, ``tpot_p95`` and ``pass_rate``. With several the search looks for the settings
    that no other beats at all of them (the Pareto front); what is recommended is the fastest of them."""
    weights: Annotated[tuple[Weight, ...], Field(strict=False)] = ()
    """Cells that count more or less than others; where several hold a cell, their factors multiply."""
    slos: Annotated[tuple[Slo, ...], Field(strict=False)] = ()
    """Latency limits; where several hold a cell, all of them hold."""

    @field_validator("goals")
    @classmethod
    def _distinct(cls, goals: tuple[Goal, ...]) -> tuple[Goal, ...]:
        if Goal.SPEEDUP not in goals or len(set(goals)) < len(goals):
            raise ValueError(f"must hold speedup, and each goal once, but got {[goal.value for goal in goals]}")
        return tuple(sorted(goals, key=lambda goal: goal is not Goal.SPEEDUP))

    @property
    def others(self) -> tuple[Goal, ...]:
        """The goals beside speed."""
        return self.goals[1:]

    def check(self, cells: Iterable[Cell], requests: int) -> None:
        """Hold the choices against the load.

        Args:
            cells: of the matrix.
            requests: that end inside the windows of a cell at least, all repeats together.

        Raises:
            ValueError: one of them names no cell, nothing counts, or a percentile would not be known.
        """
        listed = tuple(cells)
        for name, one in (*(("weights", one) for one in self.weights), *(("slos", one) for one in self.slos)):
            if not any(map(one.holds, listed)):
                raise ValueError(f"objective.{name} must name cells of the load matrix, but got {one.words}")
        if not any(self.weight(cell) for cell in listed):
            raise ValueError("objective.weights must leave a cell that counts, but got a weight of 0 for all of them")
        by = "slos" if self.slos else "goals" if {Goal.TTFT, Goal.TPOT} & set(self.goals) else None
        if by and requests < P95_REQUESTS:
            raise ValueError(
                f"load.min_requests times load.repeats must be at least {P95_REQUESTS} with objective.{by} of a "
                f"95th percentile, which fewer requests do not tell, but got {requests}"
            )

    def weight(self, cell: Cell) -> float:
        """How much a cell counts."""
        share = 1.0
        for one in self.weights:
            share *= one.weight if one.holds(cell) else 1.0
        return share

    def limits(self, cell: Cell) -> dict[str, float]:
        """The strictest limits of a cell: seconds by the summary that they limit."""
        found: dict[str, float] = {}
        for one in self.slos:
            for name, limit in one.limits.items() if one.holds(cell) else ():
                found[name] = min(limit, found.get(name, limit))
        return found
