"""One reply as it grows: text, thought, stop strings, counts and acceptance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddtree_tune.builtin.scheduler import Finish
from ddtree_tune.builtin.text import ThoughtSplitter, partial_suffix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddtree_tune.builtin.scheduler import Delivery
    from ddtree_tune.builtin.text import TokenStream


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of one delivery."""

    text: str
    """Everything, tags included."""
    thought: str
    answer: str


def join(pieces: Sequence[Piece]) -> Piece:
    """Put consecutive pieces together."""
    return Piece(
        "".join(piece.text for piece in pieces),
        "".join(piece.thought for piece in pieces),
        "".join(piece.answer for piece in pieces),
    )


@dataclass(slots=True)
class Generation:
    """The state of one reply."""

    request_id: str
    prompt_tokens: int
    draft_nodes: int
    """Drafted tokens that one verify step proposes; 0 without speculation."""
    stops: Sequence[str]
    """Strings that end the reply and are not part of it."""
    decoder: TokenStream
    splitter: ThoughtSplitter
    clock: Callable[[], float]
    started_s: float
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    thought: str = ""
    answer: str = ""
    finish: Finish | None = None
    matched: int | str | None = None
    """The token or string that ended it."""
    reasoning_tokens: int = 0
    histogram: list[int] = field(default_factory=list)
    """Index: drafted tokens accepted in a verify step; value: steps."""
    ended_s: float = 0.0
    _held: str = ""

    def add(self, delivery: Delivery) -> Piece:
        """Take one delivery; ``finish`` is set when the reply is complete."""
        if delivery.accepted is not None:
            missing = delivery.accepted + 1 - len(self.histogram)
            self.histogram.extend([0] * missing)
            self.histogram[delivery.accepted] += 1
        before, thought_before, answer_before = len(self.text), len(self.thought), len(self.answer)
        for token in delivery.tokens:
            self.token_ids.append(token)
            thinking = self.splitter.inside
            self._say(self.decoder.add(token))
            self.reasoning_tokens += thinking or self.splitter.inside
            if self.finish is not None:
                break
        if self.finish is None and delivery.finish is not None:
            self._end(delivery.finish)
        if self.finish is not None:
            self.ended_s = self.clock()
        return Piece(self.text[before:], self.thought[thought_before:], self.answer[answer_before:])

    def _end(self, finish: Finish) -> None:
        self._say(self.decoder.end())
        if self.finish is not None:
            return
        self.finish = finish
        if finish is Finish.STOP:
            self.matched = self.token_ids[-1]
        self._take(self._held)
        self._take(None)

    def _say(self, text: str) -> None:
        """Add text, unless a stop string begins in it."""
        if not self.stops:
            self._take(text)
            return
        text = self._held + text
        found = [(at, stop) for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            at, stop = min(found)
            self._take(text[:at])
            self._take(None)
            self.finish, self.matched = Finish.STOP, stop
            return
        kept = max(partial_suffix(text, stop) for stop in self.stops)
        self._held = text[len(text) - kept :]
        self._take(text[: len(text) - kept])

    def _take(self, text: str | None) -> None:
        """Append final text to what it belongs to; None ends it."""
        thought, answer = self.splitter.end() if text is None else self.splitter.add(text)
        self.text += text or ""
        self.thought += thought
        self.answer += answer

    @property
    def finish_reason(self) -> dict[str, Any] | None:
        """SGLang's native form."""
        if self.finish is None:
            return None
        if self.finish is Finish.LENGTH:
            return {"type": "length", "length": len(self.token_ids)}
        return {"type": "stop", "matched": self.matched}

    @property
    def usage(self) -> dict[str, Any]:
        """OpenAI's counts so far."""
        completion = len(self.token_ids)
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": 0},
            "reasoning_tokens": self.reasoning_tokens,
        }

    @property
    def spec_details(self) -> dict[str, Any] | None:
        """SGLang's acceptance counters; None while there are none."""
        verified = sum(self.histogram)
        if not verified:
            return None
        correct = sum(accepted * steps for accepted, steps in enumerate(self.histogram))
        proposed = verified * self.draft_nodes
        return {
            "spec_accept_rate": correct / proposed,
            "spec_accept_length": len(self.token_ids) / verified,
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": verified,
            "spec_correct_drafts_histogram": list(self.histogram),
        }

    @property
    def meta_info(self) -> dict[str, Any]:
        """SGLang's native description; acceptance only on the finished reply."""
        end_s = self.ended_s if self.finish is not None else self.clock()
        info = {
            "id": self.request_id,
            "finish_reason": self.finish_reason,
            "prompt_tokens": self.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": self.reasoning_tokens,
            "completion_tokens": len(self.token_ids),
            "cached_tokens": 0,
            "cached_tokens_details": None,
            "dp_rank": None,
            "e2e_latency": end_s - self.started_s,
        }
        return info if self.finish is None else info | (self.spec_details or {})
