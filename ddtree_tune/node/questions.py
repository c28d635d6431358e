"""What prompts ask: the shipped questions by family, or a user's own.

Speculation works better on some text than on other, so each question has a family. The first part
of its name, up to a slash, is what figures are told apart by; the rest says what the question is
about, as in ``code/anagrams``, ``maths/rates`` or ``chat/advice``.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ddtree_tune.core.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAMILIES = ("code", "maths", "chat")
"""What the shipped questions are about."""
_NAME = re.compile(r"(?:def |`)([a-z_]\w*)\(")


class Task(BaseModel):
    """One line of a prompt file."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    prompt: str
    family: str = "own"


def shipped_tasks(families: Sequence[str]) -> dict[str, tuple[Task, ...]]:
    """The shipped questions of some families, in the order of their file.

    Raises:
        LoadError: there is no such family, or none is named.
    """
    if not families or not set(families) <= set(FAMILIES):
        raise LoadError(
            f"families of prompts must be among {', '.join(FAMILIES)}, but got {', '.join(families) or 'none'}"
        )
    code = (task.model_copy(update={"family": f"code/{task.family}"}) for task in _shipped("tasks.jsonl"))
    every = (*code, *_shipped("questions.jsonl"))
    return {name: tuple(task for task in every if task.family.startswith(f"{name}/")) for name in families}


def read_tasks(text: str, source: str) -> tuple[Task, ...]:
    """Tasks from JSONL, each once.

    Args:
        text: the JSONL.
        source: where it came from, for error sentences.

    Raises:
        LoadError: a line is something else, or there is none.
    """
    rows = TypeAdapter(Task)
    tasks: dict[str, Task] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            task = rows.validate_json(line)
        except ValidationError as error:
            raise LoadError(f"{source}:{number} must be an object with a prompt, but got {line[:80]!r}") from error
        tasks.setdefault(task.prompt, task)
    if not tasks:
        raise LoadError(f"{source} must hold at least one prompt, but got none")
    return tuple(tasks.values())


def numbered(number: int, text: str) -> str:
    """A text that begins like no other, as in a list of questions."""
    return f"{number}. {text}"


class Rewording:
    """Makes any number of different prompts of one question."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Learn the function names that each family uses."""
        named = [(task.family, found[1]) for task in tasks if (found := _NAME.search(task.prompt)) is not None]
        self._names: dict[str, list[str]] = {}
        for family, name in dict.fromkeys(named):
            self._names.setdefault(family, []).append(name)

    def __call__(self, task: Task, number: int) -> str:
        """A question unlike that of any other number.

        One about a function gives it a name that its family uses, numbered once they are used up;
        any other is numbered itself.
        """
        name = _NAME.search(task.prompt)
        if name is None:
            return numbered(number, task.prompt)
        names = self._names[task.family]
        more, first = divmod(number, len(names))
        fresh = f"{names[first]}_{more}" if more else names[first]
        return re.sub(rf"\b{re.escape(name[1])}\b", fresh, task.prompt)


def _shipped(name: str) -> tuple[Task, ...]:
    file = resources.files("ddtree_tune") / "problems" / name
    return read_tasks(file.read_text("utf-8"), str(file))
