"""Text to tokens and back: chat template, tokenizer, and streams that hold whole characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from ddtree_tune.core.errors import EngineError, boundary
from ddtree_tune.core.template import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

THINK_START = "<think>"
THINK_END = "</think>"


class TextCodec:
    """The tokenizer and chat template of one model folder."""

    def __init__(self, folder: Path) -> None:
        """Read the folder.

        Raises:
            EngineError: a file is missing or not what it should be.
        """
        separate = folder / "chat_template.jinja"
        with boundary(EngineError, f"read the tokenizer and chat template of {folder}"):
            self._tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
            self._template = ChatTemplate(
                (folder / "tokenizer_config.json").read_text(encoding="utf-8"),
                separate.read_text(encoding="utf-8") if separate.exists() else None,
            )
        self.thinks = self._tokenizer.token_to_id(THINK_END) is not None

    def render(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
        """The prompt of a conversation, up to where the assistant begins.

        Raises:
            ValueError: the template refuses the messages.
        """
        return self._template.render(messages, options)

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
