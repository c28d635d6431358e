"""Kept rows as the tables of the README."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.sglang.greedy import Greedy
from benchmarks.sglang.prompts import read
from benchmarks.sglang.report_check import checks
from benchmarks.sglang.rows import Failed, Kept, Machine, Reply, Score, Served, Speed, Steps, reply_key
from benchmarks.sglang.settings import CHAIN, CHAIN_STEPS, NONE
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
    for machine in kept.of(Machine):
        torch = f", torch {machine.torch}" if machine.torch else ""
        versions = sorted({str(one.version) for one in kept.of(Served) if one.version})
        yield (
            f"{machine.gpu}; {machine.cpus} CPU cores, Python {machine.python}{torch}; SGLang {', '.join(versions)}; "
            f"commit {machine.commit}, {machine.utc}"
        )
    prompts = read()
    yield from _servers(kept)
    replies = kept.of(Reply)
    yield from _lossless(replies, {score.key: score for score in kept.of(Score)}, "the prefill of no speculation")
    if exact is not None:
        yield from _lossless(replies, exact(prompts, replies), "the target in float32")
    yield from _acceptance(kept, prompts)
    yield from checks(kept)
    yield from _speed(kept)
    yield from _steps(kept)


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
    yield f"\n### Greedy text, read by {reader}\n"
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
        for name in sorted({one.setting for one in here}, key=place):
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
        yield from table(
            ("setting", "tok/s", "from to", "repeats", "of none", "of chain", "tokens per step", "ms per step",
             "flags"), rows,
        )  # fmt: skip


def _step_ms(one: Speed) -> float:
    """Milliseconds of one step, prefills included: a step gives every request in flight its tokens."""
    metrics = one.metrics
    return float(1e3 * (metrics["accept_len"] or 1.0) * metrics["in_flight_mean"] / metrics["output_tps"])


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
