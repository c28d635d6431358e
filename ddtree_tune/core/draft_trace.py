"""What a drafter proposed at every committed position of greedy replies: the input of `replay`.

A trace is JSON lines, a header and then a line per request, so that any engine writes it with a few
lines of any language and a broken run leaves whole requests. ``docs/replay.md`` has the format with
an example. Everything that comes in is checked here, once.

Suffixes: P drafted positions, L draft depth (block size - 1), K candidates per position.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.fields import Positive, Strict
from ddtree_tune.core.yaml_text import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

VERSION = 1
"""Raised when a field changes its meaning."""
_ROUNDING = 1e-2
"""A log-probability of half precision may lie as far above 0, or above its better."""

_Token = Annotated[int, Field(ge=0)]
_Natural = Annotated[int, Field(ge=0)]
_LogProb = Annotated[float, Field(le=_ROUNDING, allow_inf_nan=False)]


class TraceHeader(Strict):
    """The first line: what holds for every request."""

    format: Literal["draft_trace"] = "draft_trace"
    """Tells the file from others."""
    version: Literal[1] = 1
    """Of this format."""
    target: str
    """Name of the target model."""
    drafter: str
    """Name of the drafter."""
    block_size: Annotated[int, Field(ge=2)]
    """Positions that the drafter fills at once, the anchor included."""
    window: Positive | None
    """Committed positions that the drafter attends to; null is all of them."""
    topk: Positive
    """Candidates kept of each position: no tree of a larger topk can be replayed."""
    dtype: str
    """Of the drafter's scores."""

    @property
    def depth(self) -> int:
        """Deepest node that a draft can have."""
        return self.block_size - 1


class RequestLine(Strict):
    """A further line: one greedy reply and what was drafted along it."""

    request_id: Annotated[str, Field(min_length=1)]
    """Names the request within the file."""
    context: Positive | None = None
    """Prompt length that the load asked for; requests of one context are replayed together."""
    family: str = ""
    """Of the prompt."""
    prompt_tokens: Positive
    """Length of the prompt, chat template included."""
    reply_tokens: Positive
    """Length of the reply; the token of the prefill is its first."""
    tokens: Annotated[tuple[_Token, ...], Field(strict=False)]
    """The reply, then up to a block of what the target would say next. Nothing follows a stop token."""
    candidates: tuple[tuple[tuple[_Token, ...], ...], ...]
    """[position][depth][rank]: tokens drafted behind the reply's token of that position, all but the last."""
    log_probs: tuple[tuple[tuple[_LogProb, ...], ...], ...]
    """Of the candidates, in descending order."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(self.tokens) < self.reply_tokens:
            raise ValueError(f"tokens must hold the {self.reply_tokens} of the reply, but got {len(self.tokens)}")
        for name, rows in (("candidates", self.candidates), ("log_probs", self.log_probs)):
            if len(rows) != self.reply_tokens - 1:
                raise ValueError(
                    f"{name} must be drafted at {self.reply_tokens - 1} positions, one less than the reply's tokens, "
                    f"but got {len(rows)}"
                )
        return self


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One greedy reply with its drafts."""

    request_id: str
    context: int | None
    family: str
    prompt_tokens: int
    reply_tokens: int
    tokens: NDArray[np.int64]
    """(n,) int64: the reply and what would follow."""
    candidates: NDArray[np.int64]
    """(P, L, K) int64 token ids; P = reply_tokens - 1."""
    log_probs: NDArray[np.float32]
    """(P, L, K) float32, descending in K."""


@dataclass(frozen=True, slots=True)
class DraftTrace:
    """All of a trace."""

    header: TraceHeader
    requests: tuple[TracedRequest, ...]

    def by_context(self) -> dict[int | None, DraftTrace]:
        """The requests of each context, shortest first."""
        known = {request.context for request in self.requests}
        return {
            context: DraftTrace(self.header, tuple(one for one in self.requests if one.context == context))
            for context in sorted(known, key=lambda context: context or 0)
        }


def read_trace(lines: Iterable[str], source: str) -> DraftTrace:
    """Check and take in a trace.

    Args:
        lines: the header and the requests; blank ones are none.
        source: where they came from, for error sentences.

    Raises:
        SpecError: the first thing that is wrong, in one sentence.
    """
    header: TraceHeader | None = None
    requests: dict[str, TracedRequest] = {}
    for number, line in enumerate(lines, 1):
        where = f"{source}:{number}"
        if not line.strip():
            continue
        try:
            if header is None:
                header = TraceHeader.model_validate_json(line)
                continue
            request = _arrays(RequestLine.model_validate_json(line), header, where)
        except ValidationError as error:
            raise SpecError(sentence(error, where, "a line")) from None
        if request.request_id in requests:
            raise SpecError(f"{where}: request_id must be unique, but got {request.request_id!r} again")
        requests[request.request_id] = request
    if header is None or not any(len(request.candidates) for request in requests.values()):
        raise SpecError(f"{source}: a trace must hold a header and a request with a draft, but got none")
    return DraftTrace(header, tuple(requests.values()))


def trace_lines(trace: DraftTrace) -> Iterator[str]:
    """The trace as its file holds it, without line ends; a float32 has its shortest form."""
    yield trace.header.model_dump_json()
    for request in trace.requests:
        yield json.dumps(
            {
                "request_id": request.request_id,
                "context": request.context,
                "family": request.family,
                "prompt_tokens": request.prompt_tokens,
                "reply_tokens": request.reply_tokens,
                "tokens": request.tokens.tolist(),
                "candidates": request.candidates.tolist(),
                "log_probs": request.log_probs.astype(str).astype(np.float64).tolist(),
            },
            separators=(",", ":"),
        )


def _arrays(line: RequestLine, header: TraceHeader, where: str) -> TracedRequest:
    shape = (line.reply_tokens - 1, header.depth, header.topk)
    for name, rows in (("candidates", line.candidates), ("log_probs", line.log_probs)):
        if odd := next((row for row in rows if [len(ranks) for ranks in row] != [header.topk] * header.depth), None):
            raise SpecError(
                f"{where}: {name} must hold {header.depth} depths of {header.topk} candidates at every position, "
                f"but got {[len(ranks) for ranks in odd]}"
            )
    candidates: NDArray[np.int64] = np.asarray(line.candidates, dtype=np.int64).reshape(shape)
    log_probs: NDArray[np.float32] = np.asarray(line.log_probs, dtype=np.float32).reshape(shape)
    ordered = np.sort(candidates, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise SpecError(f"{where}: the candidates of a depth must differ, but got one of them twice")
    if (np.diff(log_probs, axis=-1) > _ROUNDING).any():
        raise SpecError(f"{where}: log_probs of a depth must descend, but got one above its better")
    return TracedRequest(
        line.request_id,
        line.context,
        line.family,
        line.prompt_tokens,
        line.reply_tokens,
        np.asarray(line.tokens, dtype=np.int64),
        candidates,
        log_probs,
    )
