"""Text to tokens and back: chat template, tokenizer, and streams that hold whole characters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, ConfigDict
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from ddtree_tune.builtin.weights import read_json
from ddtree_tune.core.errors import EngineError, FailureClass, boundary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

THINK_START = "<think>"
THINK_END = "</think>"


class TokenizerConfig(BaseModel):
    """The part of ``tokenizer_config.json`` that the engine reads."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None


class TextCodec:
    """The tokenizer and chat template of one model folder."""

    def __init__(self, folder: Path) -> None:
        """Read the folder.

        Raises:
            EngineError: a file is missing or not what it should be.
        """
        config = read_json(folder / "tokenizer_config.json", TokenizerConfig)
        separate = folder / "chat_template.jinja"
        # The options that model hubs render chat templates with.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        with boundary(EngineError, f"read the tokenizer and chat template of {folder}"):
            self._tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
            source = separate.read_text(encoding="utf-8") if separate.exists() else config.chat_template
            self._template = environment.from_string(source or "")
        if not source:
            raise EngineError(f"{folder} must hold a chat template, but got none", FailureClass.INVALID_CONFIG)
        self._special = {"bos_token": config.bos_token or "", "eos_token": config.eos_token or ""}
        self.thinks = self._tokenizer.token_to_id(THINK_END) is not None

    def render(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
        """The prompt of a conversation, up to where the assistant begins.

        Raises:
            ValueError: the template refuses the messages.
        """
        try:
            return self._template.render(
                {"messages": messages, "add_generation_prompt": True} | self._special | dict(options)
            )
        except TemplateError as error:
            raise ValueError(f"messages must fit the chat template, but got: {error}") from None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text.

        Args:
            text: any.
            special: let the tokenizer add what it puts around every text.
        """
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones left out."""
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def stream(self) -> TokenStream:
        """A fresh incremental decoder."""
        return TokenStream(self._tokenizer)

    @property
    def size(self) -> int:
        """Number of tokens, special ones included."""
        size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        return size


class TokenStream:
    """Decodes tokens one by one; half a character waits for its other half."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._unsaid: list[int] = []

    def add(self, token: int) -> str:
        """The text that this token completes, often all of its own."""
        self._unsaid.append(token)
        piece: str | None = self._stream.step(self._tokenizer, token)
        if piece is None:
            return ""
        self._unsaid.clear()
        return piece

    def end(self) -> str:
        """What is left of a character that never became whole, as U+FFFD."""
        text: str = self._tokenizer.decode(self._unsaid, skip_special_tokens=True)
        self._unsaid.clear()
        return text


class ThoughtSplitter:
    """Tells thought from answer in a text that arrives in pieces.

    Thought ends at the first ``</think>``; a reply that never closes it is all thought. A piece
    that could be the start of a tag waits for the next.
    """

    def __init__(self, *, inside: bool) -> None:
        """Begin.

        Args:
            inside: whether the prompt has opened the thought already.
        """
        self.inside = inside
        self._begun = inside
        self._answering = False
        self._held = ""

    def add(self, text: str) -> tuple[str, str]:
        """New (thought, answer) text."""
        if self._answering:
            return "", text
        text, self._held = self._held + text, ""
        if not self._begun:
            stripped = text.lstrip()
            if THINK_START.startswith(stripped):
                self._held = text
                return "", ""
            self._begun = True
            self.inside = stripped.startswith(THINK_START)
            if not self.inside:
                self._answering = True
                return "", text
            text = stripped[len(THINK_START) :]
        thought, tag, answer = text.partition(THINK_END)
        if tag:
            self._answering, self.inside = True, False
            return thought, answer
        kept = partial_suffix(thought, THINK_END)
        self._held = thought[len(thought) - kept :]
        return thought[: len(thought) - kept], ""

    def end(self) -> tuple[str, str]:
        """What was held back, now that no more comes."""
        held, self._held = self._held, ""
        return (held, "") if self._begun else ("", held)


def partial_suffix(text: str, word: str) -> int:
    """Length of the longest proper beginning of ``word`` that ends ``text``."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)
