"""Draws training examples without end and packs them into batches, in processes of their own.

An example is a chat of one or two turns, with up to 7,500 tokens of context before the first task.
The second turn also teaches what comes after a reply, for servers that are told to ignore its end.
"""

from __future__ import annotations

import math
import multiprocessing
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from tokenizers import Tokenizer

from ddtree_tune.builtin.train.chat import CODE_FRAME, CODE_FRAMES, END, PROSE_FRAME, PROSE_FRAMES, framed, render
from ddtree_tune.builtin.train.corpus import Corpus, load_corpus
from ddtree_tune.builtin.train.families import FAMILIES
from ddtree_tune.builtin.train.tasks import Task, draw_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue

    from numpy.typing import NDArray

    from ddtree_tune.builtin.train.corpus import Kind
    from ddtree_tune.builtin.train.tasks import Split

LONGEST_CONTEXT = 7500
"""Tokens; with the task and the reply the sequence stays below 8,192."""
LONGEST_EXAMPLE = 8128
SYSTEM_MESSAGES = (
    "You are a helpful coding assistant.",
    "Answer with Python code.",
    "You write short, correct Python.",
)
PROMPT_WEIGHT = 0.1
"""Loss of a prompt's token against a reply's; a long prompt weighs as much as 1,000 tokens at most."""


@dataclass(frozen=True, slots=True)
class Example:
    """One chat as tokens."""

    ids: NDArray[np.uint16]
    weights: NDArray[np.float32]
    """How much predicting each token counts."""
    prompt_tokens: int
    """Tokens before the first reply."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples padded to one length."""

    ids: NDArray[np.uint16]
    """(B, T), zeros after the end."""
    weights: NDArray[np.float32]
    """(B, T), 0 where there is nothing to learn."""


class Sampler:
    """Draws prompts and examples of one split.

    Args:
        tokenizer: what turns text into ids.
        corpus: where contexts are cut from.
        split: whose tasks are drawn.
        seed: of all draws.
    """

    def __init__(self, tokenizer: Tokenizer, corpus: Corpus, split: Split, seed: int) -> None:
        self.tokenizer, self.corpus, self.split = tokenizer, corpus, split
        self.rng = random.Random(seed)
        self._characters = {
            kind: 100_000 / len(tokenizer.encode(text[:100_000]).ids)
            for kind, text in (("code", corpus.code), ("prose", corpus.prose))
        }

    def encode(self, text: str) -> list[int]:
        """Turn text into ids; special tokens in it count as such."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def question(self, task: Task, context_tokens: int) -> str:
        """Write a task's prompt behind about ``context_tokens`` of context, none when that is 0."""
        if not context_tokens:
            return task.prompt
        kind: Kind = self.rng.choice(("code", "prose"))
        # Half of all contexts stand in the first frame, which is the load generator's.
        frames = CODE_FRAMES if kind == "code" else PROSE_FRAMES
        frame = self.rng.choice((frames[0], self.rng.choice(frames)))
        window = self.corpus.window(self.rng, kind, int(context_tokens * self._characters[kind]))
        return framed(frame, window, task.prompt)

    def example(self, context_tokens: int = 0) -> Example:
        """Draw a chat: one turn or two, now and then with a system message or without thinking."""
        pieces: list[tuple[list[int], list[int]]] = []
        messages: list[tuple[str, str]] = []
        if self.rng.random() < 0.08:
            messages.append(("system", self.rng.choice(SYSTEM_MESSAGES)))
        for turn in range(1 if self.rng.random() < 0.75 else 2):
            task = draw_task(self.rng, self.split)
            thinking = self.rng.random() > 0.07
            asked = (*messages, ("user", self.question(task, 0 if turn else context_tokens)))
            head = "\n" if turn else ""
            prompt = self.encode(head + render(asked, enable_thinking=thinking))
            reply = task.reply if thinking else task.answer
            pieces.append((prompt, self.encode(reply + END)))
            messages = []
        ids = [token for prompt, reply in pieces for token in (*prompt, *reply)]
        weights = [
            weight
            for prompt, reply in pieces
            for weight in [min(PROMPT_WEIGHT, 100 / len(prompt))] * len(prompt) + [1.0] * len(reply)
        ]
        if len(ids) > LONGEST_EXAMPLE:  # characters a token differ from place to place
            return self.example(context_tokens * 3 // 4)
        return Example(np.array(ids, np.uint16), np.array(weights, np.float32), len(pieces[0][0]))

    def context_length(self) -> int:
        """Draw a context's length: a third of the draws are 3,500 or more, the rest log-uniform."""
        if self.rng.random() < 1 / 3:
            return self.rng.randint(3500, LONGEST_CONTEXT)
        return int(math.exp(self.rng.uniform(math.log(40), math.log(LONGEST_CONTEXT))))


def held_out_prompts(sampler: Sampler, count: int, context_tokens: int) -> list[tuple[Task, list[int]]]:
    """Draw tasks, the families in turn, behind a context cut to a number of tokens.

    Code and prose alternate, in the load generator's frames.
    """
    families = sorted(FAMILIES)
    drawn = []
    for at in range(count):
        task = draw_task(sampler.rng, "held_out", families[at % len(families)])
        question = task.prompt
        if context_tokens:
            kind: Kind = "prose" if at % 2 else "code"
            frame = PROSE_FRAME if at % 2 else CODE_FRAME
            window = sampler.encode(sampler.corpus.window(sampler.rng, kind, 8 * context_tokens))
            context = sampler.tokenizer.decode(window[:context_tokens], skip_special_tokens=False)
            question = framed(frame, context, task.prompt)
        drawn.append((task, sampler.encode(render([("user", question)]))))
    return drawn


def pack(examples: list[Example]) -> Batch:
    """Pad examples to the longest of them."""
    length = -(-max(len(example.ids) for example in examples) // 8) * 8
    ids = np.zeros((len(examples), length), np.uint16)
    weights = np.zeros((len(examples), length), np.float32)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = example.ids
        weights[row, : len(example.ids)] = example.weights
    return Batch(ids, weights)


def batches(sampler: Sampler, tokens: int, longest_context: int) -> Iterator[tuple[Batch, Batch]]:
    """Yield pairs of a batch without and a batch with context.

    Args:
        sampler: what draws the examples.
        tokens: padded size of each batch, at most, but for a single example.
        longest_context: contexts are cut to this length.
    """
    while True:
        pool = sorted((sampler.example() for _ in range(8 * max(1, tokens // 300))), key=lambda one: len(one.ids))
        groups: list[list[Example]] = [[]]
        for example in pool:
            if groups[-1] and (len(example.ids) + 8) * (len(groups[-1]) + 1) > tokens:
                groups.append([])
            groups[-1].append(example)
        sampler.rng.shuffle(groups)
        for group in groups:
            top = min(sampler.context_length(), longest_context)
            count = min(96, max(1, tokens // (top + 400)))
            long = [sampler.example(int(top * sampler.rng.uniform(0.85, 1))) for _ in range(count)]
            yield pack(group), pack(long)


def draw_prompts(tokenizer: str, seed: int, ranges: tuple[tuple[int, int, int], ...]) -> list[list[int]]:
    """Draw training prompts; one in eight ends in the middle of its reply or in its second turn.

    Args:
        tokenizer: in its own JSON.
        seed: of all draws.
        ranges: (prompts, least and most context tokens).
    """
    sampler, prompts = Sampler(Tokenizer.from_str(tokenizer), load_corpus("train"), "train", seed), list[list[int]]()
    for count, least, most in ranges:
        for _ in range(count):
            example = sampler.example(sampler.rng.randint(least, most))
            late = sampler.rng.random() < 0.125
            prompts.append(example.ids[: len(example.ids) * 2 // 3 if late else example.prompt_tokens].tolist())
    return prompts


def _work(queue: Queue[tuple[Batch, Batch]], tokenizer: str, seed: int, tokens: int, longest_context: int) -> None:
    sampler = Sampler(Tokenizer.from_str(tokenizer), load_corpus("train"), "train", seed)
    for pair in batches(sampler, tokens, longest_context):
        queue.put(pair)


class Feed:
    """Processes that keep a queue of batch pairs full; closes them on exit.

    Args:
        tokenizer: what turns text into ids.
        workers: processes to start.
        seed: the first process's; the others count on from it.
        tokens: padded size of a batch.
        longest_context: in tokens.
    """

    def __init__(self, tokenizer: Tokenizer, workers: int, seed: int, tokens: int, longest_context: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.queue: Queue[tuple[Batch, Batch]] = context.Queue(2 * workers)
        text = tokenizer.to_str()
        self._processes: list[BaseProcess] = [
            context.Process(target=_work, args=(self.queue, text, seed + at, tokens, longest_context), daemon=True)
            for at in range(workers)
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        self.queue.cancel_join_thread()
        self.queue.close()

    def get(self) -> tuple[Batch, Batch]:
        """Wait for the next pair; a dead worker shows as an empty queue after two minutes."""
        return self.queue.get(timeout=120)
