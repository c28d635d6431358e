"""How long a text is for one server: its own count, or an estimate learned from its usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ddtree_tune.node.live import ChatRequest, user
from ddtree_tune.node.replies import charged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddtree_tune.node.live import Messages

_SHORT, _LONG = 400, 4000
"""Characters of the two samples of each kind of text."""


class _Line(NamedTuple):
    base: float
    density: float
    """Tokens per character."""


Lengths: TypeAlias = tuple[_Line, ...]


@dataclass(slots=True)
class Counts:
    """What is known of one server's tokens; outlives the connection."""

    lines: dict[str, _Line] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)
    estimated: bool = False
    """Whether the server could not count."""


class Client(Protocol):
    """Whom a counter asks: a server's client, or a model's own tokenizer."""

    async def count_tokens(self, messages: Messages) -> int | None:
        """Tokens of a conversation, template included; None where nobody counts."""
        ...

    async def chat_once(self, request: ChatRequest) -> dict[str, Any]:
        """A reply with its usage."""
        ...


class Counter:
    """Counts the tokens of one user message, chat template included.

    A server without a counting endpoint is asked for one token after texts of two lengths of each
    kind; the line through its usage then estimates. Whether the estimates held is seen in the
    usage of the cell's own requests.
    """

    def __init__(self, client: Client, samples: Mapping[str, str], counts: Counts) -> None:
        """Set up.

        Args:
            client: the server.
            samples: kind of text to a few thousand characters of it.
            counts: what earlier counters of the same server have learned; it is added to.
        """
        self._client = client
        self._samples = samples
        self._counts = counts

    async def count(self, text: str, kind: str) -> int:
        """Tokens of a message of this text; what is short is asked only once.

        Raises:
            EngineError: the server fails, or reports no usage either.
        """
        if text in self._counts.short:
            return self._counts.short[text]
        count = None if self._counts.estimated else await self._client.count_tokens(user(text))
        if count is None:
            self._counts.estimated = True
            line = await self._line(kind)
            return round(line.base + line.density * len(text))
        if len(text) <= _SHORT:
            self._counts.short[text] = count
        return count

    async def lengths(self) -> Lengths:
        """How the server counts the samples: two servers with the same lengths count alike."""
        return tuple([await self._line(kind) for kind in sorted(self._samples)])

    async def density(self, kind: str) -> float:
        """Tokens per character of this kind of text."""
        return (await self._line(kind)).density

    async def _line(self, kind: str) -> _Line:
        if kind not in self._counts.lines:
            # The opening words keep the sample out of the prefix cache's way of any prompt.
            texts = [f"A sample of {kind}:\n{self._samples[kind][:length]}" for length in (_SHORT, _LONG)]
            counts = [await self._charge(text) for text in texts]
            density = (counts[1] - counts[0]) / max(1, len(texts[1]) - len(texts[0]))
            self._counts.lines[kind] = _Line(counts[0] - density * len(texts[0]), density)
        return self._counts.lines[kind]

    async def _charge(self, text: str) -> int:
        if not self._counts.estimated and (count := await self._client.count_tokens(user(text))) is not None:
            return count
        return charged(await self._client.chat_once(ChatRequest(user(text), max_tokens=1)))
