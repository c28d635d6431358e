"""What servers answer, narrowed to the fields that we use.

Unknown keys pass, for servers add fields; the types of known ones are strict, for a count that
arrives as text or as a fraction is not a count.
"""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, NonNegativeInt

from ddtree_tune.core.errors import EngineError, boundary
from ddtree_tune.core.trace import SpecCounters


class _Reply(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Delta(_Reply):
    """The new text of one chunk."""

    content: str | None = None
    reasoning_content: str | None = Field(default=None, validation_alias=AliasChoices("reasoning_content", "reasoning"))


class Choice(_Reply):
    """One alternative of a chunk; we ask for one."""

    delta: Delta = Delta()
    finish_reason: str | None = None


class PromptDetails(_Reply):
    """The part of the prompt that the prefix cache held."""

    cached_tokens: NonNegativeInt | None = None


class Usage(_Reply):
    """Token counts, cumulative for the request."""

    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    prompt_tokens_details: PromptDetails | None = None


class SpecDetails(_Reply):
    """Speculation counters of a finished request."""

    spec_verify_ct: NonNegativeInt | None = None
    spec_correct_drafts_histogram: tuple[NonNegativeInt, ...] | None = Field(
        default=None, validation_alias=AliasChoices("spec_correct_drafts_histogram", "spec_accept_histogram")
    )

    def counters(self) -> SpecCounters | None:
        """The counters, or None where the server did not speculate or does not say."""
        if not self.spec_verify_ct:
            return None
        return SpecCounters(self.spec_verify_ct, self.spec_correct_drafts_histogram or ())


class SglExt(_Reply):
    """SGLang's extension object."""

    spec_tokens_details: SpecDetails | tuple[SpecDetails | None, ...] | None = None

    def counters(self) -> SpecCounters | None:
        """The counters of the one choice that we ask for."""
        details = self.spec_tokens_details
        if isinstance(details, tuple):
            details = details[0] if len(details) == 1 else None
        return None if details is None else details.counters()


class ChatChunk(_Reply):
    """One event of ``/v1/chat/completions``."""

    object: str | None = None
    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    sglext: SglExt | None = None
    error: Any = None
    message: Any = None


class FinishReason(_Reply):
    """Why a native generation ended."""

    type: str
    message: str | None = None


class MetaInfo(SpecDetails):
    """What ``/generate`` says beside the text, cumulative."""

    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    cached_tokens: NonNegativeInt | None = None
    finish_reason: FinishReason | None = None


class GenerateChunk(_Reply):
    """One event of ``/generate``: the text so far."""

    text: str = ""
    meta_info: MetaInfo = MetaInfo()
    error: Any = None


class TokenCount(_Reply):
    """What ``/tokenize`` answers."""

    count: NonNegativeInt


class _Charged(_Reply):
    usage: Usage | None = None
    meta_info: MetaInfo | None = None


def charged(reply: dict[str, Any]) -> int:
    """The prompt tokens of a whole reply.

    Raises:
        EngineError: the reply does not say.
    """
    with boundary(EngineError, "read the usage of a reply"):
        counts = _Charged.model_validate(reply)
    prompt_tokens = next((one.prompt_tokens for one in (counts.usage, counts.meta_info) if one is not None), None)
    if prompt_tokens is None:
        raise EngineError(
            "a reply must hold usage.prompt_tokens or meta_info.prompt_tokens, but got neither; check the server's version"
        )
    return prompt_tokens
