"""The YAML contract of a sweep: every field, its meaning and its default.

A spec is parsed once and frozen. Whatever is wrong with it becomes one SpecError sentence that
names the field, what must hold and what was given.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, field_validator, model_validator

from ddtree_tune.core.cluster_spec import ClusterSpec
from ddtree_tune.core.coding_spec import CodingSpec
from ddtree_tune.core.engine import Algorithm, EngineConfig, Scalar
from ddtree_tune.core.engine_spec import EngineSpec
from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.fields import Positive, Seconds, Strict
from ddtree_tune.core.objective_spec import Goal, ObjectiveSpec
from ddtree_tune.core.price import PriceSpec  # noqa: TC001 - pydantic reads it
from ddtree_tune.core.search_spec import SearchSpec
from ddtree_tune.core.workload import Cell, Ends, load_matrix
from ddtree_tune.core.yaml_text import read_mapping, sentence

Family: TypeAlias = Literal["code", "maths", "chat"]
Baseline: TypeAlias = Literal["none", "chain", "chain_unrestricted"]
Window: TypeAlias = Annotated[int, Field(ge=1)] | Literal["none"]


class Range(Strict):
    """An integer range of a knob, ends included."""

    low: Positive
    """Smallest value."""
    high: Positive
    """Largest value."""
    log: bool = False
    """Search on a logarithmic scale."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low must be at most high, but got {self.low} above {self.high}")
        return self


Choices: TypeAlias = Annotated[tuple[Positive, ...], Field(min_length=1, strict=False)]


class SpaceSpec(Strict):
    """What the search may vary."""

    budget: Choices | Range
    """Nodes of the draft tree: a list of choices, or ``{low, high, log}``."""
    topk: Choices | Range
    """Candidates per position."""
    window: Annotated[tuple[Window, ...], Field(min_length=1, strict=False)] | Range
    """Committed positions the drafter attends to; ``none`` is all of them."""
    flags: dict[str, Annotated[tuple[Scalar, ...], Field(min_length=1, strict=False)]] = Field(default_factory=dict)
    """Further engine flags: name to list of values."""


class Point(Strict):
    """One hand-picked setting."""

    budget: Positive
    """Nodes of the draft tree."""
    topk: Positive
    """Candidates per position."""
    window: Window
    """Committed positions the drafter attends to, or ``none``."""
    flags: dict[str, Scalar] = Field(default_factory=dict)
    """Values of further engine flags."""

    def config(self) -> EngineConfig:
        """The tree configuration that this point names."""
        window = None if self.window == "none" else self.window
        return EngineConfig(Algorithm.TREE, self.budget, self.topk, window, tuple(sorted(self.flags.items())))


class FirstSpec(Strict):
    """The cells that a trial is judged by before the rest is paid for."""

    contexts: Annotated[tuple[Positive, ...], Field(min_length=1, strict=False)]
    """Some of the contexts."""
    concurrency: Annotated[tuple[Positive, ...], Field(min_length=1, strict=False)]
    """Some of the concurrencies."""


class LoadSpec(Strict):
    """The load matrix: every context at every concurrency."""

    contexts: Annotated[tuple[Positive, ...], Field(min_length=1, strict=False)]
    """Prompt lengths in tokens by the server's own count."""
    concurrency: Annotated[tuple[Positive, ...], Field(strict=False)] = ()
    """Requests in flight of the closed loops; a sweep needs one at least."""
    rates_rps: Annotated[tuple[Seconds, ...], Field(strict=False)] = ()
    """Requests per second of open loops, with Poisson arrivals."""
    output_tokens: Positive = 128
    """Tokens that every request generates; with natural ends, of the longest."""
    ends: Annotated[Ends, Field(strict=False)] = Ends.FIXED
    """``fixed``: every reply is as long as asked, so that all settings do equal work. ``natural``: the
    model's own end, sampled, which is what users run."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Of the requests; when absent 0 with fixed ends and 1.0 with natural ones."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the probability that is sampled from; when absent 1.0 with fixed ends and 0.95 with natural ones."""
    window_s: Seconds = 30.0
    """Least measured time of a cell."""
    min_requests: Annotated[int, Field(ge=0)] = 0
    """Requests that must end inside the window of a cell."""
    repeats: Positive = 1
    """Measurements of each cell in one trial, interleaved over the cells."""
    families: Annotated[tuple[Family, ...], Field(min_length=1, strict=False)] = ("code",)
    """What is asked, in turn: code, maths, chat. Each is reported apart, for speculation depends on it."""
    prompts: str | None = None
    """JSONL of prompts, or a folder of texts; shipped questions over real code and prose when absent."""
    processes: Positive | None = None
    """Processes that share the load of a cell; when absent one per 64 requests in flight, as cores allow."""
    first: FirstSpec | None = None
    """Cells that every trial measures first, each of these contexts at each of these concurrencies. A searched
    setting that is clearly behind the best one there is stopped; baselines, seeds and finals run whole."""

    @model_validator(mode="after")
    def _loaded(self) -> Self:
        if not self.concurrency and not self.rates_rps:
            raise ValueError("concurrency must hold at least one number of requests in flight, but got none")
        for name in ("contexts", "concurrency") if self.first else ():
            listed, first = getattr(self, name), getattr(self.first, name)
            if not set(first) <= set(listed):
                raise ValueError(f"first.{name} must be some of {list(listed)}, but got {list(first)}")
        return self

    def cells(self) -> tuple[Cell, ...]:
        """The matrix, cheapest cell first."""
        return self._cells(self.contexts, self.concurrency, self.rates_rps)

    def first_cells(self) -> tuple[Cell, ...]:
        """What a trial measures first, and may be stopped after; empty if nothing is."""
        return self._cells(self.first.contexts, self.first.concurrency, ()) if self.first else ()

    def _cells(
        self, contexts: tuple[int, ...], concurrency: tuple[int, ...], rates_rps: tuple[float, ...]
    ) -> tuple[Cell, ...]:
        return load_matrix(
            contexts,
            concurrency,
            output_tokens=self.output_tokens,
            window_s=self.window_s,
            min_requests=self.min_requests,
            rates_rps=rates_rps,
            ends=self.ends,
            temperature=self.temperature,
            top_p=self.top_p,
        )


class GateSpec(Strict):
    """What a server must prove before load is paid for."""

    question: str = (
        "Write a Python function `clamp(value, low, high)` that limits `value` to the range from `low` to `high`."
    )
    """Asked through the chat endpoint with greedy decoding."""
    expect: str = r"def clamp\(\s*value\b[^)]*\blow\b[^)]*\bhigh\b"
    """Regular expression that the answer must contain; this one takes type hints or none."""
    max_tokens: Positive = 1024
    """Token limit of the answer."""
    deadline_s: Seconds = 60.0
    """All of the gate's requests, at most."""
    lossless: Literal["record", "fatal"] = "record"
    """What a greedy answer unlike the baseline's means."""
    allow: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Knobs whose effective value may differ from the one asked."""

    @field_validator("expect")
    @classmethod
    def _compiles(cls, expect: str) -> str:
        try:
            re.compile(expect)
        except re.error as error:
            raise ValueError(f"must be a regular expression, but got {expect!r}: {error}") from None
        return expect


class SweepSpec(Strict):
    """One sweep: one YAML, one study, one Tune experiment, one results folder."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    """Names the results folder."""
    question: str = ""
    """What the sweep is to answer, for the report."""
    engine: EngineSpec = EngineSpec()
    """Which server runs."""
    space: SpaceSpec
    """What is varied."""
    baselines: Annotated[tuple[Baseline, ...], Field(min_length=1, strict=False)] = ("none", "chain")
    """Measured first and shown beside every setting; ``none`` is required. ``chain`` runs under the limits
    that the build's trees have, ``chain_unrestricted`` as one would serve it."""
    seeds: Annotated[tuple[Point, ...], Field(strict=False)] = ()
    """Hand-picked settings, measured after the baselines."""
    load: LoadSpec
    """What is sent."""
    coding: CodingSpec | None = CodingSpec()
    """What is graded; ``null`` grades nothing."""
    gate: GateSpec = GateSpec()
    """What is proved first."""
    objective: ObjectiveSpec = ObjectiveSpec()
    """What counts: the geometric mean of the cells' gains over no speculation, within what users accept."""
    search: SearchSpec = SearchSpec()
    """What is tried."""
    price: PriceSpec | None = None
    """What a node costs; without it no cost is told."""
    cluster: ClusterSpec = ClusterSpec()
    """Where the parts of a trial run."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.load.concurrency:
            raise ValueError("load.concurrency must hold at least one number of requests in flight, but got none")
        if "none" not in self.baselines:
            raise ValueError(f"baselines must contain none, the base of every gain, but got {list(self.baselines)}")
        if "chain_unrestricted" in self.baselines and self.engine.kind == "builtin":
            raise ValueError(
                "baselines must have chain_unrestricted with engine.kind sglang alone, whose trees limit the chain, "
                "but got it with kind: builtin"
            )
        self.objective.check(self.load.cells(), self.load.min_requests * self.load.repeats)
        self._check_goals()
        first = len(set(self.baselines)) + len({seed.config().config_id for seed in self.seeds})
        if self.search.trials < first:
            raise ValueError(
                f"search.trials must be at least the {first} baselines and seeds that run first, "
                f"but got {self.search.trials}"
            )
        return self

    def _check_goals(self) -> None:
        """Raise ValueError where something else of the sweep does not go with several goals."""
        several = [goal.value for goal in self.objective.goals]
        if len(several) > 1 and self.load.first:
            raise ValueError(
                f"load.first must be left out with several objective.goals, for what is behind in speed may be ahead "
                f"at another, but got it with {several}"
            )
        if len(several) > 1 and self.search.trace:
            raise ValueError(
                f"search.trace must be left out with several objective.goals, for it foretells speed alone, "
                f"but got it with {several}"
            )
        if Goal.SOLVED in self.objective.goals and self.coding is None:
            raise ValueError("objective.goals must not hold pass_rate where coding is null, but got both")

    def baseline_configs(self) -> tuple[EngineConfig, ...]:
        """The baselines in the order in which they run."""
        return tuple(EngineConfig(Algorithm(name)) for name in dict.fromkeys(self.baselines))

    def weights(self) -> dict[str, float]:
        """How much each cell of the matrix counts, by its id."""
        return {cell.cell_id: self.objective.weight(cell) for cell in self.load.cells()}

    @property
    def max_concurrency(self) -> int:
        """Requests in flight that the server must carry."""
        coding = (self.coding.concurrency if self.coding else None) or (1,)
        return max(*self.load.concurrency, *coding)

    @classmethod
    def parse(cls, text: str, source: str) -> SweepSpec:
        """Read a spec from YAML.

        Args:
            text: the YAML.
            source: where it came from, for error sentences.

        Raises:
            SpecError: the first thing that is wrong, in one sentence.
        """
        data = read_mapping(text, source)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(sentence(error, source)) from None
