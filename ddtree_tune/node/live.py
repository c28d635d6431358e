"""A request while it runs: what has arrived so far.

The client writes it, watchers read it, and it becomes a `RequestTrace` at any moment, so that a
request which is cut off keeps the tokens that it did receive.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtree_tune.core.errors import LoadError
from ddtree_tune.core.trace import Phase, RequestError, RequestTrace, SpecCounters

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One completion to ask for: chat messages, or text that is already templated."""

    messages: Messages | None = None
    """Goes through the chat endpoint and the model's template."""
    prompt: str | None = None
    """Goes to the native ``/generate`` as it is."""
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    ignore_eos: bool = False
    """Generate exactly ``max_tokens``: what speed cells compare is equal work."""
    seed: int | None = None
    extra: Sequence[tuple[str, Any]] = ()
    """Further fields of the request body, as (name, value)."""

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.prompt is None):
            raise LoadError("a request must hold either messages or a prompt, but got both or neither")

    @property
    def sha(self) -> str:
        """First 16 hex digits of the sha256 of what is asked."""
        asked = self.prompt if self.messages is None else json.dumps([dict(message) for message in self.messages])
        return hashlib.sha256((asked or "").encode()).hexdigest()[:16]


def user(text: str) -> Messages:
    """A conversation of one user message."""
    return ({"role": "user", "content": text},)


@dataclass(slots=True)
class LiveTrace:
    """What one request has received so far."""

    request_id: str
    phase: Phase
    family: str
    prompt_sha: str
    attempt: int = 1
    sent_ns: int = field(default_factory=time.perf_counter_ns)
    first_byte_ns: int | None = None
    end_ns: int | None = None
    """Arrival of the end marker."""
    chunk_ns: list[int] = field(default_factory=list)
    chunk_tokens: list[int | None] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    spec: SpecCounters | None = None
    status_code: int | None = None
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)

    def chunk(self, at_ns: int, text: str, reasoning: str) -> None:
        """Take the text of one chunk; an empty one leaves no mark."""
        if not text and not reasoning:
            return
        self.chunk_ns.append(at_ns)
        self.chunk_tokens.append(None)
        self.text.append(text)
        self.reasoning.append(reasoning)

    def count(self, completion_tokens: int | None, *, with_text: bool) -> None:
        """Take the server's cumulative count, for the chunk just taken if it held text."""
        if completion_tokens is None:
            return
        self.completion_tokens = completion_tokens
        if with_text:
            self.chunk_tokens[-1] = completion_tokens

    def freeze(self, error: RequestError | None = None, detail: str | None = None) -> RequestTrace:
        """The record of this request, ended now if its end marker has not come."""
        counts = tuple(count for count in self.chunk_tokens if count is not None)
        known = bool(counts) and len(counts) == len(self.chunk_ns) and list(counts) == sorted(counts)
        return RequestTrace(
            request_id=self.request_id,
            phase=self.phase,
            prompt_sha=self.prompt_sha,
            prompt_family=self.family,
            sent_ns=self.sent_ns,
            first_byte_ns=self.first_byte_ns,
            chunk_ns=tuple(self.chunk_ns),
            chunk_tokens=counts if known else None,
            end_ns=time.perf_counter_ns() if self.end_ns is None else self.end_ns,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            finish_reason=self.finish_reason,
            spec=self.spec,
            text="".join(self.text),
            reasoning="".join(self.reasoning),
            error=error,
            error_detail=detail,
            error_at_chunk=None if error is None else len(self.chunk_ns),
            status_code=self.status_code,
            attempt=self.attempt,
        )
