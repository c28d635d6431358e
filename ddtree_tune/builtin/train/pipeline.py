"""The order of the training: tokenizer, target, exam, replies, drafter, replay, choice, export."""

from __future__ import annotations

import json
import multiprocessing
import platform
import random
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer

from ddtree_tune.builtin.train.chat import END_ID
from ddtree_tune.builtin.train.corpus import load_corpus
from ddtree_tune.builtin.train.data import Feed, Sampler, draw_prompts, held_out_prompts
from ddtree_tune.builtin.train.decode import Limits, greedy
from ddtree_tune.builtin.train.evaluate import Exam, acceptance, examine
from ddtree_tune.builtin.train.export import export_drafter, export_target, load_target, save_mark
from ddtree_tune.builtin.train.loops import Mark, Reply, train_drafter, train_target
from ddtree_tune.builtin.train.model import Drafter, Shape, Target
from ddtree_tune.builtin.train.vocabulary import train_tokenizer

if TYPE_CHECKING:
    from multiprocessing.pool import Pool
    from pathlib import Path

WANTED_CHAIN, LEAST_TREE = 4.5, 5.0
"""The drafter to ship: acceptance of the chain nearest to the first, of budget 16 above the second.

A better drafter leaves the tree little to gain, and the tuner little to find.
"""
WINDOWS = (None, 64, 256, 1024)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    seconds_target: float
    seconds_draft: float
    seconds_total: float
    workers: int
    pool: int
    batch_tokens: int
    longest_context: int
    tokenizer_samples: int
    exams: tuple[tuple[int, int], ...]
    """(context tokens, tasks)."""
    replayed: int
    """Replies per exam that are replayed."""
    drafter_prompts: tuple[tuple[int, int, int], ...]
    """(prompts, least and most context tokens)."""
    seconds_replies: float
    mark_every_s: float
    new_tokens: int
    ignoring_end: float = 0.25
    """Share of the drafter's replies that go on after their end."""

    def replaced(self, **given: float | None) -> Plan:
        """Copy with every value that is not None."""
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(self, **changes)


FULL = Plan(
    seconds_target=240,
    seconds_draft=60,
    seconds_total=530,
    workers=12,
    pool=14,
    batch_tokens=32768,
    longest_context=7500,
    tokenizer_samples=6000,
    exams=((0, 260), (256, 260), (1024, 208), (4096, 104), (7000, 52)),
    replayed=26,
    drafter_prompts=((9000, 0, 0), (2500, 30, 400), (2500, 400, 1500), (1500, 1500, 4300), (400, 4300, 7400)),
    seconds_replies=70,
    mark_every_s=4,
    new_tokens=450,
)
SMOKE = Plan(
    seconds_target=1,
    seconds_draft=2,
    seconds_total=40,
    workers=1,
    pool=1,
    batch_tokens=1500,
    longest_context=200,
    tokenizer_samples=150,
    exams=((0, 2), (64, 2)),
    replayed=2,
    drafter_prompts=((4, 0, 0), (2, 30, 100)),
    seconds_replies=6,
    mark_every_s=1,
    new_tokens=24,
)


class Run:
    """The state of one training: clock, log and what is known so far."""

    def __init__(self, out: Path, plan: Plan, seed: int) -> None:
        self.out, self.plan, self.begun = out, plan, time.perf_counter()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        name = torch.cuda.get_device_name() if self.device == "cuda" else platform.machine()
        self.facts: dict[str, Any] = {
            "device": name,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "seed": seed,
            "plan": asdict(plan),
            "shape": asdict(Shape()),
        }
        out.mkdir(parents=True, exist_ok=True)

    @property
    def left_s(self) -> float:
        """Seconds until the evaluation has to end."""
        return self.plan.seconds_total - (time.perf_counter() - self.begun)

    def say(self, line: str) -> None:
        """Print a line with the time, and keep it."""
        stamped = f"[{time.perf_counter() - self.begun:6.1f}] {line}"
        print(stamped, flush=True)
        with (self.out / "log.txt").open("a", encoding="utf-8") as log:
            log.write(stamped + "\n")

    def keep(self, **facts: Any) -> None:
        """Add to eval.json and write it."""
        self.facts |= facts
        (self.out / "eval.json").write_text(json.dumps(self.facts, indent=1) + "\n", encoding="utf-8")


def run(out: Path, plan: Plan, seed: int, trained: Path | None = None) -> None:
    """Train a pair from nothing, or a drafter for a target that is there, and score it.

    Args:
        out: folder for everything that is written.
        plan: how much of everything.
        seed: of all draws; the clock decides how many steps fit, so two runs differ all the same.
        trained: folder of a trained target with its tokenizer.
    """
    torch.manual_seed(seed)
    now, shape = Run(out, plan, seed), Shape()
    train, held_out = load_corpus("train"), load_corpus("held_out")
    if trained is None:
        tokenizer = train_tokenizer(train, shape.vocabulary, plan.tokenizer_samples, seed)
    else:
        tokenizer = Tokenizer.from_file(str(trained / "tokenizer.json"))
    now.keep(code_characters=len(train.code), prose_characters=len(train.prose))
    now.say(f"{now.facts['device']} torch {torch.__version__}")
    with multiprocessing.get_context("spawn").Pool(plan.pool) as pool:
        target = make_target(now, shape, tokenizer) if trained is None else load_target(trained, shape).to(now.device)
        now.keep(target_parameters=sum(one.numel() for one in target.parameters()))
        export_target(out / "pair" / "target", target, target.embed(torch.tensor(3, device=now.device)), tokenizer)
        exams = take_exams(now, target, Sampler(tokenizer, held_out, "held_out", 1000 * seed + 9), pool)
        replies = draw_replies(now, target, draw_all_prompts(now, tokenizer, pool))
        seconds = min(plan.seconds_draft, max(1.0, now.left_s - 60))
        times = [plan.mark_every_s * at for at in range(2, int(seconds / plan.mark_every_s) + 1)]
        marks, history = train_drafter(target, replies, seconds, marks=times, tokens=plan.batch_tokens, say=now.say)
        now.keep(drafter=asdict(history), drafter_parameters=sum(one.numel() for one in marks[-1].weights.values()))
        chosen = choose(now, target, marks, exams[0], pool)
        export_target(out / "pair" / "target", target, chosen.weights["mask_row"], tokenizer)
        export_drafter(out / "pair" / "draft", shape, chosen.weights)
        for mark in marks:
            save_mark(out / "marks", mark.name, shape, mark.weights)
        replay_all(now, target, chosen, exams, pool)
    now.say("end")


def make_target(now: Run, shape: Shape, tokenizer: Tokenizer) -> Target:
    """Train a target."""
    plan, seed = now.plan, 1000 * now.facts["seed"] + 50
    with Feed(tokenizer, plan.workers, seed, plan.batch_tokens, plan.longest_context) as feed:
        target, history = train_target(shape, feed, now.device, plan.seconds_target, now.say)
    now.keep(target=asdict(history))
    now.say(f"target done: {history.steps} steps, {history.tokens / 1e6:.1f}M tokens")
    return target


def take_exams(now: Run, target: Target, sampler: Sampler, pool: Pool) -> list[Exam]:
    """Measure the pass rate at every context length."""
    limits = Limits(now.plan.new_tokens, cache_tokens=2**20)
    exams = []
    for context_tokens, count in now.plan.exams:
        drawn = held_out_prompts(sampler, count, context_tokens)
        exams.append(examine(target, drawn, sampler, pool, limits))
        exams[-1].scores["context_tokens"] = context_tokens
        now.keep(pass_rates=[exam.scores for exam in exams])
        now.say(f"exam { ({name: one for name, one in exams[-1].scores.items() if name != 'failures'}) }")
    return exams


def draw_all_prompts(now: Run, tokenizer: Tokenizer, pool: Pool) -> list[list[int]]:
    """Draw the drafter's prompts in all processes of the pool, in random order."""
    seeds = range(1000 * now.facts["seed"] + 700, 1000 * now.facts["seed"] + 700 + now.plan.pool)
    ranges = tuple((-(-count // now.plan.pool), least, most) for count, least, most in now.plan.drafter_prompts)
    parts = pool.starmap(draw_prompts, [(tokenizer.to_str(), seed, ranges) for seed in seeds], chunksize=1)
    prompts = [prompt for part in parts for prompt in part]
    random.Random(now.facts["seed"]).shuffle(prompts)
    return prompts


def draw_replies(now: Run, target: Target, prompts: list[list[int]]) -> list[Reply]:
    """Let the target answer training prompts, some of them past the end of the reply."""
    plan, split = now.plan, int(len(prompts) * now.plan.ignoring_end)
    replies, begun = list[Reply](), time.perf_counter()
    for part, ignore_end in ((prompts[:split], True), (prompts[split:], False)):
        share = plan.seconds_replies * (len(part) / len(prompts))
        limits = Limits(plan.new_tokens, 2**21, time.perf_counter() + share, ignore_end)
        for prompt, tokens in zip(part, greedy(target, part, limits), strict=True):
            if tokens and len(tokens) > target.shape.block:
                replies.append(Reply(prompt, tokens))
    ended = sum(END_ID in reply.tokens for reply in replies)
    facts = {
        "prompts": len(prompts),
        "replies": len(replies),
        "ended": ended,
        "tokens": sum(len(reply.tokens) for reply in replies),
        "seconds": round(time.perf_counter() - begun, 1),
    }
    now.keep(replies=facts)
    now.say(f"replies {facts}")
    return replies


def choose(now: Run, target: Target, marks: list[Mark], exam: Exam, pool: Pool) -> Mark:
    """Replay every mark without context and take the one that keeps the tuning problem open."""
    drafter, found = Drafter(target.shape).to(now.device).eval(), []
    replies = exam.replies[: 2 * now.plan.replayed]
    for mark in marks:
        drafter.load_state_dict(mark.weights)
        table = acceptance(target, drafter, pool, replies, block=target.shape.block, window=None)
        found.append({"mark": mark.name, "step": mark.step, **table})
        now.say(f"mark {mark.name} step {mark.step} chain {table['chain']} topk 4 {table['topk_4']}")
        now.keep(marks=found)
    good = [at for at, row in enumerate(found) if row["topk_4"][16] >= LEAST_TREE] or [len(found) - 1]
    best = marks[min(good, key=lambda at: abs(found[at]["chain"] - WANTED_CHAIN))]
    now.keep(chosen={"mark": best.name, "step": best.step, "seconds": best.seconds})
    now.say(f"chosen {best.name}")
    return best


def replay_all(now: Run, target: Target, mark: Mark, exams: list[Exam], pool: Pool) -> None:
    """Replay the chosen drafter at every context length, window and both block sizes."""
    drafter, rows = Drafter(target.shape).to(now.device).eval(), []
    drafter.load_state_dict(mark.weights)
    full = target.shape.block
    for exam in exams:
        for block, window in [*((full, window) for window in WINDOWS), (full // 2, None)]:
            if now.left_s < 0:
                now.say("no time left for the rest of the replay")
                return
            table = acceptance(target, drafter, pool, exam.replies[: now.plan.replayed], block=block, window=window)
            rows.append({"context_tokens": exam.scores["context_tokens"], **table})
            now.keep(acceptance=rows)
            now.say(
                f"replay context {exam.scores['context_tokens']} block {block} window {window} "
                f"chain {table['chain']} topk 4 {table['topk_4']}"
            )
    prompts = [reply.prompt for reply in exams[0].replies[: now.plan.replayed]]
    limits = Limits(now.plan.new_tokens, ignore_end=True)
    answered = greedy(target, prompts, limits)
    endless = [Reply(prompt, tokens) for prompt, tokens in zip(prompts, answered, strict=True) if tokens]
    table = acceptance(target, drafter, pool, endless, block=full, window=None)
    now.keep(acceptance_ignoring_end=table)
    now.say(f"replay past the end chain {table['chain']} topk 4 {table['topk_4']}")
