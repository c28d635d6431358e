"""Prompts of real text, of a given length by the server's own count, none like another.

A prompt is a frame around a slice of the corpus and a task; the smallest contexts hold the task
alone, its function renamed. Which slice and which task is decided by (stream, index) and the seed
alone, never by speed or by what ran before, so every trial of a sweep sends the same prompts.
Slices begin at different lines, so that a prefix cache finds no more than the frame's first words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ddtree_tune.core.errors import LoadError, boundary
from ddtree_tune.node.corpus import Corpus, interpreter_corpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.counting import Counter

FRAMES = {
    "code": ("Here is some code from the project:\n```python\n", "\n```\n"),
    "prose": ("Here is a page of the manual:\n", "\n\n"),
}
"""What stands before and after the slice; the task follows."""
_PROSE_EVERY = 4
"""One prompt in so many is prose: the manual is smaller than the library."""
_TASK_STRIDE = 37
"""Streams begin at different tasks."""
_TASK_SAMPLE = 9
_LEAST_SLICE = 24
"""Tokens of context below which a frame is not worth its words."""
_CUTS = 8
"""Counts per slice before another task is tried."""
_SAMPLE_LINES = 200
_NAME = re.compile(r"(?:def |`)([a-z_]\w*)\(")


class Task(BaseModel):
    """One line of a prompt file."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    prompt: str
    family: str = "own"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message."""

    text: str
    family: str
    """What the slice is, then what the task is, as in ``code/anagrams``."""
    tokens: int
    """By the server's count, template included; an estimate if the server cannot count."""


class Prompts(Protocol):
    """Where a cell's prompts come from."""

    sha256: str
    """Names all text that prompts are made of."""
    samples: Mapping[str, str]
    """Kind of text to a piece of it, for `Counter`."""

    async def cut(self, cell: Cell, stream: int, index: int, counter: Counter) -> Prompt:
        """The prompt number ``index`` of a stream, of the cell's length."""
        ...


class CorpusPrompts:
    """Tasks behind slices of a corpus."""

    def __init__(self, corpus: Corpus, tasks: Sequence[Task], *, seed: int, streams: int) -> None:
        """Set up.

        Args:
            corpus: what the slices are cut from.
            tasks: what is asked.
            seed: of the sweep.
            streams: how many streams the sweep needs; no two of them share a prompt.
        """
        self.sha256 = corpus.sha256
        self.samples: Mapping[str, str] = {
            "code": "\n".join(corpus.code[:_SAMPLE_LINES]),
            "prose": "\n".join(corpus.prose[:_SAMPLE_LINES]),
            "bare": "\n".join(task.prompt for task in tasks[:_SAMPLE_LINES]),
        }
        self._lines = {"code": corpus.code, "prose": corpus.prose}
        self._tasks = tasks
        self._streams = -(-streams // _PROSE_EVERY) * _PROSE_EVERY
        rng = np.random.default_rng(seed)
        self._starts = {kind: rng.permutation(_starts(lines)) for kind, lines in self._lines.items()}
        self._order = rng.permutation(len(tasks))
        named = [(task.family, found[1]) for task in tasks if (found := _NAME.search(task.prompt)) is not None]
        self._names: dict[str, list[str]] = {}
        for family, name in dict.fromkeys(named):
            self._names.setdefault(family, []).append(name)

    async def cut(self, cell: Cell, stream: int, index: int, counter: Counter) -> Prompt:
        """See ``Prompts``; tasks are tried in a fixed order until one fits.

        Raises:
            LoadError: no task fits the cell's context.
        """
        number = index * self._streams + stream
        kind, begin = "code", number
        if (index + stream) % _PROSE_EVERY == 0 and number // _PROSE_EVERY < len(self._starts["prose"]):
            kind, begin = "prose", number // _PROSE_EVERY
        ways = ("bare", "framed") if await self._is_small(cell, kind, counter) else ("framed", "bare")
        for way, attempt in product(ways, range(len(self._tasks))):
            task = self._tasks[self._order[(index + _TASK_STRIDE * stream + attempt) % len(self._tasks)]]
            room = cell.context - await counter.count(task.prompt, "bare")
            prompt = None
            if way == "framed" and room - await _framing(kind, counter) >= _LEAST_SLICE:
                prompt = await self._framed(cell, kind, begin, task, counter)
            elif way == "bare" and abs(room) <= cell.prompt_tolerance:
                prompt = await self._bare(cell, number, task, counter)
            if prompt is not None:
                return prompt
        raise LoadError(
            f"a prompt of {cell.context} tokens must hold the chat template and a task, but got no task "
            f"that fits among {len(self._tasks)}; use another context or give load.prompts"
        )

    async def _is_small(self, cell: Cell, kind: str, counter: Counter) -> bool:
        """Whether a task of middling length leaves no room for a slice: then no prompt has one."""
        sample = sorted([await counter.count(task.prompt, "bare") for task in self._tasks[:_TASK_SAMPLE]])
        return cell.context - sample[len(sample) // 2] - await _framing(kind, counter) < _LEAST_SLICE

    async def _framed(self, cell: Cell, kind: str, begin: int, task: Task, counter: Counter) -> Prompt | None:
        """Cut a slice at a line end so that the whole is of the right length, or give up."""
        before, after = FRAMES[kind]
        lines, start = self._lines[kind], int(self._starts[kind][begin % len(self._starts[kind])])
        reach = start + cell.context  # a line holds a token at least
        lines = lines[start:reach] + lines[: max(0, reach - len(lines))]
        ends = np.asarray(list(accumulate(len(line) + 1 for line in lines)))
        empty = await counter.count(task.prompt, "bare") + await _framing(kind, counter)
        density = await counter.density(kind)
        low, high = 0, len(lines) + 1
        for _ in range(_CUTS):
            wanted = (cell.context - empty) / density
            taken = int(np.clip(np.argmin(np.abs(ends - wanted)) + 1, low + 1, high - 1))
            text = before + "\n".join(lines[:taken]) + after + task.prompt
            tokens = await counter.count(text, kind)
            if abs(tokens - cell.context) <= cell.prompt_tolerance:
                return Prompt(text, f"{kind}/{task.family}", tokens)
            low, high = (taken, high) if tokens < cell.context else (low, taken)
            if high - low < 2:
                break
            density = max(tokens - empty, 1) / int(ends[taken - 1])
        return None

    async def _bare(self, cell: Cell, number: int, task: Task, counter: Counter) -> Prompt | None:
        """Give the task's function a name that its family uses, numbered once they are used up."""
        name = _NAME.search(task.prompt)
        if name is None:
            return None
        names = self._names[task.family]
        more, first = divmod(number, len(names))
        fresh = f"{names[first]}_{more}" if more else names[first]
        text = re.sub(rf"\b{re.escape(name[1])}\b", fresh, task.prompt)
        tokens = await counter.count(text, "bare")
        return (
            Prompt(text, f"bare/{task.family}", tokens) if abs(tokens - cell.context) <= cell.prompt_tolerance else None
        )


class FilePrompts:
    """A user's own prompts, used as they are or with leading lines cut off."""

    def __init__(self, tasks: Sequence[Task], sha256: str, *, streams: int) -> None:
        self.sha256 = sha256
        self.samples: Mapping[str, str] = {"bare": "\n".join(task.prompt for task in tasks[:_SAMPLE_LINES])}
        self._tasks = tasks
        self._streams = streams

    async def cut(self, cell: Cell, stream: int, index: int, counter: Counter) -> Prompt:
        """See ``Prompts``; the end is kept, for there stands the question.

        Raises:
            LoadError: no prompt of the file is long enough.
        """
        number = index * self._streams + stream
        for attempt in range(len(self._tasks)):
            task = self._tasks[(number + attempt) % len(self._tasks)]
            lines = task.prompt.split("\n")
            low, high = 0, len(lines)
            while low < high:
                text = "\n".join(lines[(low + high) // 2 :])
                tokens = await counter.count(text, "bare")
                if abs(tokens - cell.context) <= cell.prompt_tolerance:
                    return Prompt(text, task.family, tokens)
                low, high = ((low + high) // 2 + 1, high) if tokens > cell.context else (low, (low + high) // 2)
        raise LoadError(
            f"load.prompts must hold a prompt that can be cut to {cell.context} tokens at a line, but got none "
            f"among {len(self._tasks)}; add longer prompts or use smaller contexts"
        )


async def _framing(kind: str, counter: Counter) -> int:
    """Tokens that a frame adds."""
    return await counter.count("x".join(FRAMES[kind]), kind) - await counter.count("x", kind)


def load_prompts(path: str | None, *, seed: int, streams: int) -> Prompts:
    """Prompts from a user's JSONL, or of the shipped tasks over the interpreter's own text.

    Raises:
        LoadError: the file cannot be read or holds something else.
    """
    if path is not None:
        with boundary(LoadError, f"read the prompts {path}"):
            text = Path(path).read_text(encoding="utf-8")
        return FilePrompts(_tasks(text, path), Corpus.of("", text).sha256, streams=streams)
    shipped = resources.files("ddtree_tune") / "problems" / "tasks.jsonl"
    return CorpusPrompts(
        interpreter_corpus(), _tasks(shipped.read_text("utf-8"), str(shipped)), seed=seed, streams=streams
    )


def _tasks(text: str, source: str) -> tuple[Task, ...]:
    rows = TypeAdapter(Task)
    tasks = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            tasks.append(rows.validate_json(line))
        except ValidationError as error:
            raise LoadError(f"{source}:{number} must be an object with a prompt, but got {line[:80]!r}") from error
    if not tasks:
        raise LoadError(f"{source} must hold at least one prompt, but got none")
    return tuple(tasks)


def _starts(lines: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Lines that begin a slice like no other: not blank, and with a next line no other has with it."""
    first: dict[tuple[str, str], int] = {}
    for at, pair in enumerate(pairwise(lines)):
        if pair[0]:
            first.setdefault(pair, at)
    return np.fromiter(first.values(), dtype=np.int64)
