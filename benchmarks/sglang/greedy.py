"""How far greedy replies are from what no speculation says, and whether rounding explains it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar

from benchmarks.sglang.settings import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.sglang.rows import Reply, Score

_WORST = 20
"""Tokens that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """What greedy replies are judged by."""

    plain: dict[int, Reply]
    """What no speculation says one request after the other, by prompt."""
    scores: dict[str, Score]
    own_tokens: int
    own_behind: list[float]
    HEAD: ClassVar = (
        *("setting", "asked", "replies", "tokens", "equal", "largest gap at a first difference"),
        *("tokens behind", "furthest", "beyond rounding", "in replies at place"),
    )

    @classmethod
    def of(cls, replies: Sequence[Reply], scores: dict[str, Score]) -> Greedy:
        """From all replies, and what a reader thinks of them by their keys."""
        own = [reply for reply in replies if reply.setting == NONE.name and reply.key in scores]
        plain = {reply.index: reply for reply in replies if (reply.setting, reply.mode) == (NONE.name, "alone")}
        behind = [nats for reply in own for _, nats in scores[reply.key].behind]
        return cls(plain, scores, sum(len(reply.ids) for reply in own), behind)

    @property
    def noise(self) -> float:
        """How far a token of no speculation lies behind at most, in nats."""
        return max(self.own_behind, default=0.0)

    def row(self, name: str, mode: str, replies: list[Reply]) -> list[str]:
        """One setting, asked in one way."""
        compared = [reply for reply in replies if reply.index in self.plain]
        unlike = [reply for reply in compared if reply.ids != self.plain[reply.index].ids]
        gaps = [gap for reply in unlike if (gap := self._gap(reply)) is not None]
        behind = self._behind(replies)
        far = Counter(reply.place for reply, _, nats in behind if nats > self.noise)
        return [
            name,
            mode,
            str(len(replies)),
            str(sum(len(reply.ids) for reply in replies)),
            f"{len(compared) - len(unlike)} of {len(compared)}",
            f"{max(gaps):.4f}" if gaps else "unknown" if unlike else "",
            str(len(behind)),
            f"{max(nats for _, _, nats in behind):.4f}" if behind else "",
            str(far.total()),
            ", ".join(f"{place}: {count}" for place, count in sorted(far.items())),
        ]

    def worst(self, replies: Sequence[Reply]) -> Iterator[str]:
        """The tokens that rounding does not explain, the furthest first."""
        far = [one for one in self._behind(replies) if one[2] > self.noise]
        far.sort(key=lambda one: -one[2])
        yield from ("", *(_told(*one) for one in far[:_WORST]))

    def _behind(self, replies: Iterable[Reply]) -> list[tuple[Reply, int, float]]:
        """Every token that is not the likeliest: its reply, position and distance in nats."""
        return [
            (reply, int(position), nats)
            for reply in replies
            if reply.key in self.scores
            for position, nats in self.scores[reply.key].behind
        ]

    def _gap(self, reply: Reply) -> float | None:
        """Nats between the tokens where a text first differs from no speculation's; None if they were not read."""
        plain = self.plain[reply.index]
        if reply.key not in self.scores or plain.key not in self.scores:
            return None
        at = next(at for at, (one, other) in enumerate(zip_longest(reply.ids, plain.ids)) if one != other)
        both = (*self.scores[reply.key].behind, *self.scores[plain.key].behind)
        return max((nats for position, nats in both if position == at), default=0.0)


def _told(reply: Reply, position: int, nats: float) -> str:
    return (
        f"- {nats:.4f} nats behind: {reply.setting}, {reply.mode} {reply.turn}, place {reply.place}, "
        f"prompt {reply.index}, token {position} of {len(reply.ids)}"
    )
