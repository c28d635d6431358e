"""A model's chat template: from messages to the text that the model reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, BeforeValidator, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _content(token: Any) -> Any:
    """A special token's text; hubs write it bare or as an object."""
    return token.get("content") if isinstance(token, dict) else token


def _default(template: Any) -> Any:
    """The template for ordinary chats where a folder holds several by name."""
    named = {one.get("name"): one.get("template") for one in template} if isinstance(template, list) else {}
    return named.get("default") if isinstance(template, list) else template


class _TokenizerConfig(BaseModel):
    """The part of ``tokenizer_config.json`` that a template needs."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    chat_template: Annotated[str | None, BeforeValidator(_default)] = None
    bos_token: Annotated[str | None, BeforeValidator(_content)] = None
    eos_token: Annotated[str | None, BeforeValidator(_content)] = None


class ChatTemplate:
    """Renders conversations as model hubs do."""

    def __init__(self, tokenizer_config: str, separate: str | None = None) -> None:
        """Compile the template.

        Args:
            tokenizer_config: text of ``tokenizer_config.json``.
            separate: text of ``chat_template.jinja``, which goes first where both exist.

        Raises:
            ValueError: there is no template, or it is not one.
        """
        config = _TokenizerConfig.model_validate_json(tokenizer_config)
        source = separate or config.chat_template
        if not source:
            raise ValueError("a chat template must be in chat_template.jinja or tokenizer_config.json, but got none")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
        environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: f"{datetime.now(UTC):{form}}"}
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ValueError(f"a chat template must be Jinja, but got: {error}") from None
        self._special = {"bos_token": config.bos_token or "", "eos_token": config.eos_token or ""}

    def render(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None) -> str:
        """The prompt of a conversation, up to where the assistant begins.

        Args:
            messages: role and content of each.
            options: what a template understands beside them, such as ``enable_thinking``.

        Raises:
            ValueError: the template refuses the messages.
        """
        fields = {"messages": messages, "add_generation_prompt": True} | self._special | dict(options or {})
        try:
            return self._template.render(fields)
        except (TemplateError, TypeError) as error:
            raise ValueError(f"messages must fit the chat template, but got: {error}") from None


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
