"""How a sweep searches: how many trials, how the next one is chosen, and what is measured again."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ddtree_tune.core.fields import Positive, Strict


class FinalSpec(Strict):
    """The last word: the best settings and the baselines measured again, interleaved."""

    settings: Annotated[int, Field(ge=0)] = 2
    """How many of the best settings are measured again."""
    rounds: Annotated[int, Field(ge=0)] = 2
    """Measurements of each, baselines included."""
    bands: bool = True
    """Whether a setting that is believed to be best for some number of requests in flight, by over 1 %, is measured
    again too, in the cells of that number alone: the schedule by users is made of what was measured again."""


class SearchSpec(Strict):
    """How many trials, and how the next one is chosen."""

    trials: Positive = 24
    """Valid trials, baselines and seeds included, finals not."""
    sampler: Literal["surrogate", "tpe", "gp", "nsga2", "random", "grid"] = "surrogate"
    """How the next setting is proposed: ``surrogate`` suits few trials, ``grid`` goes in order, the others are
    Optuna's; ``gp`` needs torch and scipy."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the search and of the prompts."""
    max_failures: Positive = 8
    """Infrastructure failures after which the sweep gives up."""
    trace: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """A trace of drafts (``ddtree-tune trace``) or a list with one per window, for sampler surrogate: what it foretells
    with step times of the sweep's own trials is where the search starts from, as far as measurements agree."""
    pass_rate_margin: Annotated[float, Field(ge=0, le=1)] = 0.05
    """A setting must not pass fewer problems than the baseline by more than this share."""
    final: FinalSpec = FinalSpec()
    """The last word."""

    @field_validator("trace", mode="before")
    @classmethod
    def _listed(cls, trace: object) -> object:
        return (trace,) if isinstance(trace, str) else trace

    @model_validator(mode="after")
    def _foretold(self) -> Self:
        if self.trace and self.sampler != "surrogate":
            raise ValueError(f"trace must come with sampler surrogate, which alone can use it, but got {self.sampler}")
        return self
