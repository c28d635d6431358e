"""Kept rows as the tables of the README."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.sglang.greedy import Greedy
from benchmarks.sglang.prompts import read
from benchmarks.sglang.report_check import checks
from benchmarks.sglang.report_speed import speed
from benchmarks.sglang.rows import Failed, Kept, Machine, Reply, Score, Served, Steps, Traced, reply_key
from benchmarks.sglang.settings import CHAIN, CHAIN_STEPS
from benchmarks.sglang.table import place, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.sglang.prompts import Prompt

    Judge = Callable[[Sequence[Prompt], Sequence[Reply]], dict[str, Score]]
_BATCHES = (1, 8, 16, 32, 64)
"""Batch sizes whose steps are shown."""


def lines(kept: Kept, exact: Judge | None = None) -> Iterator[str]:
    """The tables, each with its heading.

    Args:
        kept: rows of any number of runs on one kind of machine.
        exact: judges replies in a better way than a server can; it may take a minute.
    """
    prompts = read()
    for pair, some in kept.by_pair().items():
        yield f"\n## {pair[:1].upper()}{pair[1:]}\n"
        for run in some.runs():
            yield from _machine(run)
            yield from _servers(run)
        yield from speed(some)
        yield from _steps(some)
        for run in some.runs():
            replies = run.of(Reply)
            scores = {score.key: score for score in run.of(Score)}
            yield from _lossless(replies, scores, "the prefill of no speculation")
            if exact is not None:
                yield from _lossless(replies, exact(prompts, replies), "the target in float32")
            yield from _acceptance(run, prompts)
            yield from _traced(run)
        yield from checks(some)


def _machine(run: Kept) -> Iterator[str]:
    for machine in run.of(Machine):
        torch = f", torch {machine.torch}" if machine.torch else ""
        versions = sorted({str(one.version) for one in run.of(Served) if one.version})
        gpus = machine.gpu.split("; ")
        yield (
            f"- {len(gpus)} x {' and '.join(sorted(set(gpus)))}; {machine.cpus} CPU cores, Python "
            f"{machine.python}{torch}; SGLang {', '.join(versions)}; commit {machine.commit}, {machine.utc}"
        )


def _servers(kept: Kept) -> Iterator[str]:
    for row in kept.of(Served):
        if row.error or row.differs:
            yield f"- {row.setting}: {'; '.join(row.differs)} {(row.error or '').splitlines()[:1]}"
    for fault in kept.of(Failed):
        yield f"- {fault.setting}, {fault.what}: {fault.error.strip().splitlines()[-1]}"


def _lossless(replies: Sequence[Reply], scores: dict[str, Score], reader: str) -> Iterator[str]:
    greedy = Greedy.of(replies, scores)
    if not greedy.plain:
        return
    names = ", ".join(dict.fromkeys(name for (name, _), _ in _grouped(replies)))
    yield f"\n### Greedy text of {names}, read by {reader}\n"
    yield (
        f"Of the {greedy.own_tokens} tokens of no speculation's own replies, {len(greedy.own_behind)} lie behind the "
        f"likeliest, by {greedy.noise:.4f} nats at most: what rounding does.\n"
    )
    yield from table(Greedy.HEAD, (greedy.row(name, mode, some) for (name, mode), some in _grouped(replies)))
    yield from greedy.worst(replies)


def _grouped(replies: Sequence[Reply]) -> list[tuple[tuple[str, str], list[Reply]]]:
    """Replies by setting and mode."""
    groups: dict[tuple[str, str], list[Reply]] = {}
    for reply in replies:
        groups.setdefault((reply.setting, reply.mode), []).append(reply)
    return sorted(groups.items(), key=lambda item: (place(item[0][0]), item[0][1]))


def _acceptance(kept: Kept, prompts: list[Prompt]) -> Iterator[str]:
    replies = [reply for reply in kept.of(Reply) if reply.verify_steps and not reply.mode.startswith("burst")]
    rows = []
    for (name, mode), some in _grouped(replies):
        key = CHAIN_STEPS if name == CHAIN.name else name
        if key not in prompts[0].steps:
            continue
        same = [reply for reply in some if reply.key == reply_key(reply.index, prompts[reply.index].reply)]
        rows.append([name, mode, *_against(some, prompts, key), f"{len(same)} of {len(some)}"])
        rows[-1] += _against(same, prompts, key)[:3] if same else ["", "", ""]
    if rows:
        yield "\n### Acceptance against the reference\n"
        head = ("setting", "asked", "tokens per step", "reference", "ratio")
        equal = ("replies that are equal", "their tokens per step", "their reference", "their ratio")
        yield from table((*head, *equal), rows)


def _traced(run: Kept) -> Iterator[str]:
    """Served replies against the server's own drafts along the same text, replayed."""
    known = {one.index: one for one in run.of(Traced)}
    rows = []
    for (name, mode), some in _grouped([reply for reply in run.of(Reply) if reply.verify_steps]):
        key = CHAIN_STEPS if name == CHAIN.name else name
        same = [one for one in some if one.index in known and known[one.index].ids == one.ids]
        if not same or key not in known[same[0].index].steps:
            continue
        tokens = sum(len(one.ids) - 1 for one in same)
        served, replayed = sum(one.verify_steps or 0 for one in same), sum(known[one.index].steps[key] for one in same)
        exact = sum(one.verify_steps == known[one.index].steps[key] for one in same)
        rows.append(
            (
                name,
                mode,
                f"{len(same)} of {len(some)}",
                f"{tokens / served:.3f}",
                f"{tokens / replayed:.3f}",
                f"{replayed / served:.3f}",
                f"{exact} of {len(same)}",
            )
        )
    if rows:
        yield "\n### Acceptance against a replay of the server's own drafts\n"
        head = ("setting", "asked", "replies of the same text", "tokens per step", "replayed", "ratio", "exact")
        yield from table(head, rows)


def _against(replies: Sequence[Reply], prompts: list[Prompt], key: str) -> list[str]:
    """Tokens behind the first per verify step: the server's, the replay's on the same prompts, their ratio."""
    seen = sum(len(one.ids) - 1 for one in replies) / sum(one.verify_steps or 0 for one in replies)
    asked = [prompts[one.index] for one in replies]
    known = sum(len(one.reply) - 1 for one in asked) / sum(one.steps[key] for one in asked)
    return [f"{seen:.3f}", f"{known:.3f}", f"{seen / known:.3f}"]


def _steps(kept: Kept) -> Iterator[str]:
    rows = [
        [one.setting.removesuffix(" timed"), str(one.batch), "yes" if one.graphs else "no", str(one.steps)]
        + ["" if part is None else f"{part:.3f}" for part in (one.draft_ms, one.tree_ms, one.verify_ms, one.commit_ms)]
        for one in kept.of(Steps)
        if one.batch in _BATCHES
    ]
    if rows:
        yield "\n### Parts of a step, milliseconds\n"
        yield from table(("setting", "batch", "graphs", "steps", "draft", "tree", "verify", "commit"), rows)
