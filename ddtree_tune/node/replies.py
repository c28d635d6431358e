"""What servers answer, narrowed to the fields that we use.

Unknown keys pass, for servers add fields; the types of known ones are strict, for a count that
arrives as text, as a fraction or below zero is not a count. The client reads one of these for every
chunk of a stream, so they are msgspec structs and no pydantic models: as strict, in a third of the
time (benchmarks/load).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ddtree_tune.core.errors import EngineError, boundary
from ddtree_tune.core.trace import SpecCounters

Count = Annotated[int, msgspec.Meta(ge=0)]


class _Reply(msgspec.Struct, frozen=True, gc=False):
    """No garbage collection: what comes out of JSON holds no cycles."""


class Delta(_Reply, frozen=True):
    """The new text of one chunk."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """What some servers call ``reasoning_content``."""


class Choice(_Reply, frozen=True):
    """One alternative of a chunk; we ask for one."""

    delta: Delta = Delta()
    finish_reason: str | None = None


class PromptDetails(_Reply, frozen=True):
    """The part of the prompt that the prefix cache held."""

    cached_tokens: Count | None = None


class Usage(_Reply, frozen=True):
    """Token counts, cumulative for the request."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class SpecDetails(_Reply, frozen=True):
    """Speculation counters of a finished request."""

    spec_verify_ct: Count | None = None
    spec_correct_drafts_histogram: tuple[Count, ...] | None = None
    spec_accept_histogram: tuple[Count, ...] | None = None
    """What older SGLang calls ``spec_correct_drafts_histogram``."""

    def counters(self) -> SpecCounters | None:
        """The counters, or None where the server did not speculate or does not say."""
        if not self.spec_verify_ct:
            return None
        histogram = self.spec_correct_drafts_histogram
        return SpecCounters(self.spec_verify_ct, (self.spec_accept_histogram if histogram is None else histogram) or ())


class SglExt(_Reply, frozen=True):
    """SGLang's extension object."""

    spec_tokens_details: SpecDetails | tuple[SpecDetails | None, ...] | None = None

    def counters(self) -> SpecCounters | None:
        """The counters of the one choice that we ask for."""
        details = self.spec_tokens_details
        if isinstance(details, tuple):
            details = details[0] if len(details) == 1 else None
        return None if details is None else details.counters()


class ChatChunk(_Reply, frozen=True):
    """One event of ``/v1/chat/completions``."""

    object: str | None = None
    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    sglext: SglExt | None = None
    error: Any = None
    message: Any = None


class FinishReason(_Reply, frozen=True):
    """Why a native generation ended."""

    type: str
    message: str | None = None


class MetaInfo(SpecDetails, frozen=True):
    """What ``/generate`` says beside the text, cumulative."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    finish_reason: FinishReason | None = None


class GenerateChunk(_Reply, frozen=True):
    """One event of ``/generate``: the text so far."""

    text: str = ""
    meta_info: MetaInfo = MetaInfo()
    error: Any = None


class _TokenCount(_Reply, frozen=True):
    count: Count


class _Charged(_Reply, frozen=True):
    usage: Usage = Usage()
    meta_info: MetaInfo = MetaInfo()


class _Counted(_Reply, frozen=True):
    meta_info: MetaInfo = MetaInfo()


class _Once(_Reply, frozen=True):
    choices: tuple[_Counted, ...] = ()


def counted(reply: Any) -> int:
    """The count that ``/tokenize`` answers.

    Raises:
        EngineError: the reply is none.
    """
    with boundary(EngineError, "read a token count"):
        return msgspec.convert(reply, _TokenCount).count


def charged(reply: dict[str, Any]) -> int:
    """The prompt tokens of a whole reply.

    Raises:
        EngineError: the reply does not say.
    """
    with boundary(EngineError, "read the usage of a reply"):
        counts = msgspec.convert(reply, _Charged)
    prompt_tokens = counts.meta_info.prompt_tokens if counts.usage.prompt_tokens is None else counts.usage.prompt_tokens
    if prompt_tokens is None:
        raise EngineError(
            "a reply must hold usage or meta_info with prompt_tokens, but got neither; see the server's log"
        )
    return prompt_tokens


def counters(reply: dict[str, Any]) -> SpecCounters | None:
    """Speculation of a whole chat reply, which holds ``meta_info`` with its choice; None if it does not say.

    Raises:
        EngineError: the reply is none.
    """
    with boundary(EngineError, "read the speculation of a reply"):
        once = msgspec.convert(reply, _Once)
    return once.choices[0].meta_info.counters() if once.choices else None
