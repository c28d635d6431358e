"""What clients may ask, in SGLang's and OpenAI's words.

Fields that would change the reply and that this engine cannot honour are refused, not ignored;
the native endpoint's sampling parameters admit no unknown name, as in SGLang.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ddtree_tune.builtin.sampling import Sampling

Share = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
TopK = Annotated[int, Field(ge=-1)]
Count = Annotated[int, Field(ge=1)]
Stops = str | tuple[str, ...] | None
Seed = Annotated[int, Field(ge=0)] | None
Zero = Annotated[float, Field(ge=0, le=0)] | None
"""Neutral value of a penalty: a penalised reply is not offered."""


class Refused(Exception):  # noqa: N818  # an answer, not a failure of ours
    """A request that gets an error reply."""

    def __init__(self, message: str, status: int = 400, parameter: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.parameter = parameter


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class SamplingParams(BaseModel):
    """``sampling_params`` of ``/generate``."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    max_new_tokens: Count | None = 128
    temperature: Temperature = 1.0
    top_p: Share = 1.0
    top_k: TopK = -1
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    ignore_eos: bool = False
    stop: Stops = None
    stop_token_ids: tuple[int, ...] | None = None
    sampling_seed: Seed = None
    n: Literal[1] = 1
    skip_special_tokens: Literal[True] = True
    frequency_penalty: Zero = 0
    presence_penalty: Zero = 0
    repetition_penalty: Annotated[float, Field(ge=1, le=1)] | None = 1
    min_new_tokens: Zero = 0


class GenerateRequest(_Body):
    """``/generate``."""

    text: str | None = None
    input_ids: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    sampling_params: SamplingParams = SamplingParams()
    stream: bool = False
    return_logprob: Literal[False] = False
    rid: str | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("exactly one of text and input_ids must be given")
        return self


class StreamOptions(_Body):
    """OpenAI's ``stream_options`` and SGLang's addition to it."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class _OpenAiRequest(_Body):
    """What chat and text completions share."""

    model: str
    temperature: Temperature = 1.0
    top_p: Share = 1.0
    top_k: TopK = -1
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Seed = None
    stop: Stops = None
    stop_token_ids: tuple[int, ...] | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_meta_info: bool = False
    return_spec_tokens_details: bool = False
    n: Literal[1] = 1
    frequency_penalty: Zero = 0
    presence_penalty: Zero = 0
    logit_bias: None = None

    @model_validator(mode="after")
    def _meta_info_needs_one_reply(self) -> Self:
        if self.stream and self.return_meta_info:
            raise ValueError("return_meta_info must be used without stream; ask for return_spec_tokens_details")
        return self

    def sampling(self, max_tokens: int) -> Sampling:
        """The engine's view of the request."""
        return Sampling(
            max_tokens,
            self.temperature,
            self.top_p,
            self.top_k,
            self.min_p,
            self.seed,
            self.ignore_eos,
            frozenset(self.stop_token_ids or ()),
        )


class TextPart(_Body):
    """One part of a message's content; only text is understood."""

    type: Literal["text"]
    text: str


class ChatMessage(_Body):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[TextPart, ...] | None = None

    def for_template(self) -> dict[str, Any]:
        """The form that chat templates expect."""
        content = self.content or ""
        return {"role": self.role, "content": content if isinstance(content, str) else "".join(p.text for p in content)}


class ChatRequest(_OpenAiRequest):
    """``/v1/chat/completions``."""

    messages: Annotated[tuple[ChatMessage, ...], Field(min_length=1)]
    max_tokens: Count | None = Field(default=None, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    chat_template_kwargs: dict[str, Any] = {}
    separate_reasoning: bool = True
    logprobs: Literal[False] | None = None
    response_format: None = None
    tools: None = None


class CompletionRequest(_OpenAiRequest):
    """``/v1/completions``."""

    prompt: str | tuple[Annotated[int, Field(ge=0)], ...]
    max_tokens: Count | None = 16
    echo: Literal[False] = False
    suffix: None = None
    logprobs: None = None


class TokenizeRequest(_Body):
    """``/tokenize``: a text, or a conversation with the template around it."""

    model: str | None = None
    prompt: str | None = None
    messages: tuple[ChatMessage, ...] | None = None
    add_special_tokens: bool = True
    chat_template_kwargs: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of prompt and messages must be given")
        return self


Request = TypeVar("Request", bound=BaseModel)


def parse(kind: type[Request], body: bytes) -> Request:
    """Read a request.

    Raises:
        Refused: with one sentence about the first thing that is wrong.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the body"
        message = first["msg"].removeprefix("Value error, ")
        raise Refused(f"{field}: {message}, but got {_short(first['input'])}", parameter=field) from None


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
