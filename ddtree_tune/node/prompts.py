"""Prompts of real text, of a given length by the server's own count, none like another.

A prompt is a frame around a slice of a corpus and a question behind it; the smallest contexts hold
the question alone, reworded. Family, slice and question are decided by (stream, index) and the seed
alone, never by speed or by what ran before, so every trial of a sweep sends the same prompts.
Slices begin at different lines, so that a prefix cache finds no more than the frame's first words;
what has to be used twice begins with its number.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ddtree_tune.core.errors import LoadError, boundary
from ddtree_tune.node.corpus import folder_corpus, interpreter_corpus, spread
from ddtree_tune.node.fitting import Divisible, fit
from ddtree_tune.node.questions import Rewording, numbered, read_tasks, shipped_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.corpus import Corpus
    from ddtree_tune.node.counting import Counter
    from ddtree_tune.node.questions import Task


_WORD = r"\s*\S{1,16}"
"""Not longer, so that a row of signs or a script without spaces can be cut to length as well."""


class Frame(NamedTuple):
    """What stands around a slice; the question follows."""

    before: str
    after: str
    piece: str
    """Regular expression of what a slice is made of: it ends where one ends."""


FRAMES = {
    "code": Frame("Here is some code from the project:\n```\n", "```\n", r".*\n"),
    "prose": Frame("Here is a page of the manual:\n", "\n\n", _WORD),
}
SLICES = {"code": ("prose", "code", "code", "code"), "maths": ("prose",), "chat": ("prose",)}
"""What the questions of a family stand behind, in turn."""
_STREAM_STRIDE = 37
"""Streams begin at different questions."""
_SLICE_STRIDE = 7919
"""From a slice that cannot be cut to length, such as a table of signs, to the one that is tried next."""
_SAMPLE = 9
_LEAST_SLICE = 24
"""Tokens of context below which a frame is not worth its words."""
_MOST_REWORDED = 24
"""Tokens that rewording a question may add."""
_MOST_CHARACTERS = 16
"""A token has fewer, averaged over a slice."""
_SAMPLE_LINES = 200
_ANY_NUMBER = 1000


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message."""

    text: str
    family: str
    """The family, what is asked, what it stands behind, as in ``code/anagrams/prose``."""
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


class _Place(NamedTuple):
    """Which slice a question stands behind."""

    kind: str
    number: int
    """Of the prompt among all."""
    attempt: int
    """Another attempt takes another slice; it may be one that a prompt has, so its number stands before it."""


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    tasks: tuple[Task, ...]
    """In an order of the seed's."""
    reword: Rewording
    slices: tuple[str, ...]
    steps: tuple[int, ...]
    """From a question to the ones that are tried after it; not its neighbours, which others begin with."""

    @property
    def kind(self) -> str:
        """Names this text for `Counter`."""
        return f"{self.name} questions"

    def from_(self, begin: int) -> Iterator[Task]:
        """Every question once."""
        return (self.tasks[(begin + step) % len(self.tasks)] for step in self.steps)


class CorpusPrompts:
    """Questions behind slices of a corpus, the families in turn."""

    def __init__(self, corpus: Corpus, tasks: Mapping[str, Sequence[Task]], *, seed: int, streams: int) -> None:
        """Set up.

        Args:
            corpus: what the slices are cut from.
            tasks: what is asked, by family.
            seed: of the sweep.
            streams: how many streams the sweep needs; no two of them share a prompt.
        """
        rng = np.random.default_rng(seed)
        lines = {"code": corpus.code, "prose": corpus.prose}
        self._lines = {kind: some for kind, some in lines.items() if any(some)}
        self._starts = {kind: rng.permutation(_starts(some)) for kind, some in self._lines.items()}
        self._families = tuple(
            _Family(
                name,
                tuple(some[at] for at in rng.permutation(len(some))),
                Rewording(some),
                tuple(kind for kind in SLICES[name] if kind in self._lines) or tuple(self._lines),
                (0, *(rng.permutation(len(some) - 1) + 1).tolist()),
            )
            for name, some in tasks.items()
        )
        self._streams = streams
        self.samples: Mapping[str, str] = {
            **{kind: "\n".join(spread(some, _SAMPLE_LINES)) for kind, some in self._lines.items()},
            **{one.kind: "\n".join(task.prompt for task in one.tasks[:_SAMPLE_LINES]) for one in self._families},
        }
        asked = [(task.family, task.prompt) for some in tasks.values() for task in some]
        self.sha256 = _sha(json.dumps([corpus.sha256, FRAMES, SLICES, asked]))

    async def cut(self, cell: Cell, stream: int, index: int, counter: Counter) -> Prompt:
        """See ``Prompts``; questions are tried in a fixed order until one fits.

        Raises:
            LoadError: no question of the family fits the cell's context.
        """
        number = index * self._streams + stream
        turn, which = divmod(index + stream, len(self._families))
        family = self._families[which]
        kind = family.slices[turn % len(family.slices)]
        small = await self._is_small(cell, kind, family, counter)
        for alone in (small, not small):
            for attempt, task in enumerate(family.from_(turn + _STREAM_STRIDE * stream)):
                room = cell.context - await counter.count(task.prompt, family.kind)
                prompt = None
                if alone and -cell.prompt_tolerance <= room <= cell.prompt_tolerance + _MOST_REWORDED:
                    prompt = await self._alone(cell, number, family, task, counter)
                elif not alone and room - await _framing(kind, counter) >= _LEAST_SLICE:
                    at = _Place(kind, number, attempt)
                    prompt = await self._behind(cell, at, family, task, counter)
                if prompt is not None:
                    return prompt
        raise LoadError(
            f"a prompt of {cell.context} tokens must hold the chat template and a task, but got no {family.name} task "
            f"that fits among {len(family.tasks)}; use another context, or load.prompts with more text"
        )

    async def _is_small(self, cell: Cell, kind: str, family: _Family, counter: Counter) -> bool:
        """Whether a question of middling length leaves no room for a slice: then no prompt has one."""
        sample = sorted([await counter.count(task.prompt, family.kind) for task in family.tasks[:_SAMPLE]])
        return cell.context - sample[len(sample) // 2] - await _framing(kind, counter) < _LEAST_SLICE

    async def _alone(self, cell: Cell, number: int, family: _Family, task: Task, counter: Counter) -> Prompt | None:
        """Ask the question without a slice, or give up."""
        text = family.reword(task, number)
        tokens = await counter.count(text, family.kind)
        fits = abs(tokens - cell.context) <= cell.prompt_tolerance
        return Prompt(text, f"{task.family}/bare", tokens) if fits else None

    async def _behind(self, cell: Cell, at: _Place, family: _Family, task: Task, counter: Counter) -> Prompt | None:
        """Ask the question behind a slice that makes the whole of the right length, or give up."""
        kind, number = at.kind, at.number
        frame, starts, lines = FRAMES[kind], self._starts[kind], self._lines[kind]
        start = int(starts[(number + at.attempt * _SLICE_STRIDE) % len(starts)])
        end = start + cell.context  # a line holds a token at least
        lines = lines[start:end] + lines[: min(start, max(0, end - len(lines)))]
        slice_ = "\n".join((*lines, ""))[: _MOST_CHARACTERS * cell.context]
        pieces = re.findall(frame.piece, slice_)
        used = at.attempt > 0 or number >= len(starts)
        empty = await counter.count(task.prompt, family.kind) + await _framing(kind, counter)
        empty += await _numbering(kind, counter) if used else 0

        def whole(taken: int) -> str:
            text = frame.before + "".join(pieces[:taken]) + frame.after + task.prompt
            return numbered(number, text) if used else text

        found = await fit(cell, Divisible(pieces, whole, empty, kind), counter)
        return Prompt(found.text, f"{task.family}/{kind}", found.tokens) if found else None


class FilePrompts:
    """A user's own prompts, used as they are or with their leading words cut off."""

    _KIND = "own prompts"

    def __init__(self, tasks: Sequence[Task], *, streams: int) -> None:
        self.sha256 = _sha(json.dumps([(task.family, task.prompt) for task in tasks]))
        self.samples: Mapping[str, str] = {self._KIND: "\n".join(task.prompt for task in tasks[:_SAMPLE_LINES])}
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
            words = re.findall(_WORD, task.prompt)
            used = attempt > 0 or number >= len(self._tasks)
            empty = await counter.count("x", self._KIND) + (await _numbering(self._KIND, counter) if used else 0)

            def whole(taken: int, task: Task = task, words: list[str] = words, used: bool = used) -> str:
                kept = task.prompt if taken == len(words) else "".join(words[-taken:]).lstrip()
                return numbered(number, kept) if used else kept

            found = await fit(cell, Divisible(words[::-1], whole, empty, self._KIND), counter)
            if found is not None:
                return Prompt(found.text, task.family, found.tokens)
        raise LoadError(
            f"load.prompts must hold a prompt that can be cut to {cell.context} tokens, but got none "
            f"among {len(self._tasks)}; add longer prompts or use smaller contexts"
        )


def load_prompts(path: str | None, *, seed: int, streams: int, families: Sequence[str] = ("code",)) -> Prompts:
    """Prompts from a user's JSONL, or questions over a user's folder or the interpreter's own text.

    Args:
        path: of a JSONL of whole prompts, which bring their own families, or of a folder of text
            files, from which slices are cut instead of the interpreter's text.
        seed: of the sweep.
        streams: how many streams the sweep needs; no two of them share a prompt.
        families: whose questions are asked in turn.

    Raises:
        LoadError: the file or folder cannot be read or holds something else.
    """
    if path is not None and not Path(path).is_dir():
        with boundary(LoadError, f"read the prompts {path}"):
            text = Path(path).read_text(encoding="utf-8")
        return FilePrompts(read_tasks(text, path), streams=streams)
    tasks = shipped_tasks(families)
    corpus = interpreter_corpus() if path is None else folder_corpus(Path(path))
    return CorpusPrompts(corpus, tasks, seed=seed, streams=streams)


async def _framing(kind: str, counter: Counter) -> int:
    """Tokens that a frame adds."""
    frame = FRAMES[kind]
    return await counter.count(f"{frame.before}x{frame.after}", kind) - await counter.count("x", kind)


async def _numbering(kind: str, counter: Counter) -> int:
    """Tokens that a number in front adds."""
    return await counter.count(numbered(_ANY_NUMBER, "x"), kind) - await counter.count("x", kind)


def _starts(lines: Sequence[str]) -> NDArray[np.int64]:
    """Lines that begin a slice like no other: not blank, and with a next line no other has with it."""
    first: dict[tuple[str, str], int] = {}
    for at, pair in enumerate(pairwise((*lines, ""))):
        if pair[0]:
            first.setdefault(pair, at)
    return np.fromiter(first.values(), dtype=np.int64)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
