"""Kept rows as the tables of the README."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.sglang.prompts import read
from benchmarks.sglang.rows import Failed, Kept, Machine, Reply, Score, Served, Speed, Steps, reply_key
from benchmarks.sglang.settings import CHAIN, NONE, STOCK, TIMED, TREES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.sglang.prompts import Prompt

_ORDER = [
    setting.name for setting in (*STOCK, *sorted(TREES, key=lambda one: (one.config.budget, one.config.topk)), *TIMED)
]
_WORST = 20
"""Tokens that are listed one by one."""
_CHAIN_STEPS = "15/1"
"""The tree that the chain of a whole block is."""


def lines(kept: Kept) -> Iterator[str]:
    """The tables, each with its heading."""
    for machine in kept.of(Machine):
        torch = f", torch {machine.torch}" if machine.torch else ""
        versions = sorted({str(one.version) for one in kept.of(Served) if one.version})
        yield (
            f"{machine.gpu}; {machine.cpus} CPU cores, Python {machine.python}{torch}; SGLang {', '.join(versions)}; "
            f"commit {machine.commit}, {machine.utc}"
        )
    prompts = read()
    yield from _servers(kept)
    yield from _lossless(kept)
    yield from _acceptance(kept, prompts)
    yield from _speed(kept)
    yield from _steps(kept)


def _servers(kept: Kept) -> Iterator[str]:
    for row in kept.of(Served):
        if row.error or row.differs:
            yield f"- {row.setting}: {'; '.join(row.differs)} {(row.error or '').splitlines()[:1]}"
    for fault in kept.of(Failed):
        yield f"- {fault.setting}, {fault.what}: {fault.error.strip().splitlines()[-1]}"


def _lossless(kept: Kept) -> Iterator[str]:
    greedy = Greedy.of(kept)
    if not greedy.plain:
        return
    yield "\n### Greedy text\n"
    yield (
        f"Of the {greedy.own_tokens} tokens of no speculation's own replies, {len(greedy.own_behind)} lie behind the "
        f"likeliest when its prefill reads them, by {greedy.noise:.4f} nats at most: what rounding does.\n"
    )
    head = ("setting", "asked", "replies", "tokens", "equal", "largest gap at a first difference")
    further = ("tokens behind", "furthest", "beyond rounding", "in replies at place")
    grouped = _grouped(kept.of(Reply))
    yield from _table((*head, *further), (greedy.row(name, mode, some) for (name, mode), some in grouped))
    yield from greedy.worst(kept.of(Reply))


def _grouped(replies: Sequence[Reply]) -> list[tuple[tuple[str, str], list[Reply]]]:
    """Replies by setting and mode."""
    groups: dict[tuple[str, str], list[Reply]] = {}
    for reply in replies:
        groups.setdefault((reply.setting, reply.mode), []).append(reply)
    return sorted(groups.items(), key=lambda item: (_place(item[0][0]), item[0][1]))


@dataclass(frozen=True, slots=True)
class Greedy:
    """What greedy replies are judged by."""

    plain: dict[int, Reply]
    """What no speculation says one request after the other, by prompt."""
    scores: dict[str, Score]
    own_tokens: int
    own_behind: list[float]

    @classmethod
    def of(cls, kept: Kept) -> Greedy:
        """From all rows."""
        scores = {score.key: score for score in kept.of(Score)}
        own = [reply for reply in kept.of(Reply) if reply.setting == NONE.name and reply.key in scores]
        plain = {reply.index: reply for reply in kept.of(Reply) if (reply.setting, reply.mode) == (NONE.name, "alone")}
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


def _acceptance(kept: Kept, prompts: list[Prompt]) -> Iterator[str]:
    replies = [reply for reply in kept.of(Reply) if reply.verify_steps and not reply.mode.startswith("burst")]
    rows = []
    for (name, mode), some in _grouped(replies):
        key = _CHAIN_STEPS if name == CHAIN.name else name
        if key not in prompts[0].steps:
            continue
        same = [reply for reply in some if reply.key == reply_key(reply.index, prompts[reply.index].reply)]
        rows.append([name, mode, *_against(some, prompts, key), f"{len(same)} of {len(some)}"])
        rows[-1] += _against(same, prompts, key)[:3] if same else ["", "", ""]
    if rows:
        yield "\n### Acceptance against the reference\n"
        head = ("setting", "asked", "tokens per step", "reference", "ratio")
        equal = ("replies that are equal", "their tokens per step", "their reference", "their ratio")
        yield from _table((*head, *equal), rows)


def _against(replies: Sequence[Reply], prompts: list[Prompt], key: str) -> list[str]:
    """Tokens behind the first per verify step: the server's, the replay's on the same prompts, their ratio."""
    seen = sum(len(one.ids) - 1 for one in replies) / sum(one.verify_steps or 0 for one in replies)
    asked = [prompts[one.index] for one in replies]
    known = sum(len(one.reply) - 1 for one in asked) / sum(one.steps[key] for one in asked)
    return [f"{seen:.3f}", f"{known:.3f}", f"{seen / known:.3f}"]


def _speed(kept: Kept) -> Iterator[str]:
    speeds = [one for one in kept.of(Speed) if one.metrics["output_tps"] and "timed" not in one.setting]
    at = {(one.setting, one.gpu, one.turn, one.concurrency): one.metrics["output_tps"] for one in speeds}
    for concurrency in sorted({one.concurrency for one in speeds}):
        yield f"\n### {concurrency} at once\n"
        rows = []
        here = [one for one in speeds if one.concurrency == concurrency]
        for name in sorted({one.setting for one in here}, key=_place):
            some = [one for one in here if one.setting == name]
            tps = [one.metrics["output_tps"] for one in some]
            ratios = [
                [
                    one.metrics["output_tps"] / base
                    for one in some
                    if (base := at.get((than.name, one.gpu, one.turn, concurrency))) is not None
                ]
                for than in (NONE, CHAIN)
            ]
            accept = [one.metrics["accept_len"] for one in some if one.metrics["accept_len"]]
            step = [_step_ms(one) for one in some]
            flags = sorted({flag for one in some for flag in one.metrics["flags"]})
            rows.append(
                [name, f"{median(tps):.0f}", f"{min(tps):.0f} to {max(tps):.0f}", str(len(tps))]
                + [f"{median(ratio):.2f}" if ratio else "" for ratio in ratios]
                + [f"{median(accept):.2f}" if accept else "", f"{median(step):.2f}", ", ".join(flags)]
            )
        yield from _table(
            ("setting", "tok/s", "from to", "repeats", "of none", "of chain", "tokens per step", "ms per step",
             "flags"), rows,
        )  # fmt: skip


def _step_ms(one: Speed) -> float:
    """Milliseconds of one step, prefills included: a step gives every request in flight its tokens."""
    metrics = one.metrics
    return float(1e3 * (metrics["accept_len"] or 1.0) * metrics["in_flight_mean"] / metrics["output_tps"])


def _steps(kept: Kept) -> Iterator[str]:
    rows = [
        [one.setting.removesuffix(" timed"), str(one.batch), str(one.steps)]
        + ["" if part is None else f"{part:.3f}" for part in (one.draft_ms, one.tree_ms, one.verify_ms, one.commit_ms)]
        for one in kept.of(Steps)
        if one.batch in {1, 8, 32, 64}
    ]
    if rows:
        yield "\n### Parts of a step, milliseconds\n"
        yield from _table(("setting", "batch", "steps", "draft", "tree", "verify", "commit"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _place(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
