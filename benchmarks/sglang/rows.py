"""What a measurement keeps: JSON lines, written as they come, so that a run that is cut is worth what it has."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran; the first line of a file."""

    gpu: str
    cpus: int
    python: str
    torch: str | None
    utc: str
    commit: str | None
    pair: str
    """Target and drafter, their size, and over how many GPUs each server spread them."""


@dataclass(frozen=True, slots=True)
class Served:
    """One server: came up or why not."""

    setting: str
    gpu: int
    ready_s: float | None
    argv: list[str]
    effective: dict[str, Any] | None
    differs: list[str]
    """Knobs that the server resolved otherwise than asked."""
    error: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One greedy reply."""

    setting: str
    gpu: int
    mode: str
    """``alone``: one after the other; ``crowd``: 16 in flight all the time; ``burst``: 16 at once and nothing after,
    with an empty prefix cache; ``burst cached``: the same with what was there."""
    turn: int
    index: int
    """Of the prompt."""
    place: int
    """Within its burst, in the order of sending."""
    prompt_tokens: int
    cached_tokens: int | None
    ids: list[int]
    verify_steps: int | None
    histogram: list[int] | None

    @property
    def key(self) -> str:
        """Names prompt and text."""
        return reply_key(self.index, self.ids)


@dataclass(frozen=True, slots=True)
class Score:
    """What a reader thinks of a reply: the server without speculation in one prefill, or the target in float32."""

    gpu: int
    key: str
    index: int
    behind: list[list[float]]
    """[position, nats] of each token that is not the likeliest there."""
    margins: list[list[float]]
    """[position, nats] where the likeliest two are within CLOSE."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One repeat of one cell."""

    setting: str
    gpu: int
    turn: int
    concurrency: int
    metrics: dict[str, Any]
    """As in the JSON of ``ddtree-tune bench``."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What the parts of a step took, over the steps of one batch size; medians, in milliseconds."""

    setting: str
    gpu: int
    batch: int
    graphs: bool
    """Whether drafter and target were replayed from CUDA graphs."""
    steps: int
    draft_ms: float | None
    tree_ms: float | None
    verify_ms: float | None
    commit_ms: float | None


@dataclass(frozen=True, slots=True)
class Compared:
    """Greedy replies against no speculation's, by their first differences alone."""

    setting: str
    gpu: int
    mode: str
    """``alone`` and ``crowd`` as of a reply; ``mixed``: beside as many that are sampled; ``long``: a prompt of more
    than one chunk, and once more from the prefix cache."""
    replies: int
    tokens_per_step: float | None
    """All tokens over verify steps."""
    differences: list[list[float | None]]
    """[reply, position, nats] of each that differs: how far no speculation's token lies before the other one where they
    part, by no speculation's prefill. Negative where it lies behind."""
    cached: list[int] | None = None
    """Prompt tokens from the prefix cache, of each reply to the long prompt."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Sampled replies to one prompt against no speculation's: the first three tokens."""

    setting: str
    gpu: int
    draws: int
    cells: int
    """Texts that were seen often enough to count."""
    chi_square: float


@dataclass(frozen=True, slots=True)
class Constrained:
    """A reply under a regular expression."""

    setting: str
    gpu: int
    pattern: str
    text: str


@dataclass(frozen=True, slots=True)
class Traced:
    """One greedy reply of a server that traces, and its drafts replayed."""

    gpu: int
    index: int
    """Of the prompt."""
    ids: list[int]
    steps: dict[str, int]
    """Verify steps by ``budget/topk``."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A setting that must not start."""

    setting: str
    gpu: int
    error: str | None
    """What the server said last; None if it served."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Something that could not be measured."""

    setting: str
    gpu: int
    what: str
    error: str


CLOSE = 0.3
"""Nats between the likeliest two that are worth keeping."""
AnyRow = (
    Machine | Served | Reply | Score | Speed | Steps | Compared | Drawn | Constrained | Traced | Refused | Failed
)  # fmt: skip
Row = TypeVar("Row", bound=AnyRow)
_KINDS = {kind.__name__.lower(): kind for kind in get_args(AnyRow)}


def reply_key(index: int, ids: Sequence[int]) -> str:
    """Names a prompt's text."""
    return f"{index}-{hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()[:12]}"


class Rows:
    """A file of rows that grows; several threads may add."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, row: AnyRow) -> None:
        """Write one row, all of it."""
        line = json.dumps({"kind": type(row).__name__.lower()} | asdict(row), default=str)
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()


class Kept:
    """The rows of some runs.

    Args:
        runs: of each its rows, in order.
    """

    def __init__(self, runs: Iterable[Sequence[AnyRow]]) -> None:
        self._runs = [list(run) for run in runs]

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Kept:
        """A run from each file, a compressed one by its name; a last line that was cut is left out."""
        return cls([_rows(path) for path in paths])

    def of(self, kind: type[Row]) -> list[Row]:
        """The rows of one kind, in order."""
        return [row for run in self._runs for row in run if isinstance(row, kind)]

    def runs(self) -> list[Kept]:
        """Each run alone: only its own baselines stood beside what it measured."""
        return [Kept([run]) for run in self._runs]

    def by_pair(self) -> dict[str, Kept]:
        """The runs of each pair, as their machines name it; nothing where a run does not say."""
        found: dict[str, list[list[AnyRow]]] = {}
        for run in self._runs:
            pair = next((row.pair for row in run if isinstance(row, Machine)), "")
            found.setdefault(pair, []).append(run)
        return {pair: Kept(runs) for pair, runs in found.items()}


def _rows(path: Path) -> list[AnyRow]:
    with pa.input_stream(path) as stream:
        text = stream.read().decode()
    rows: list[AnyRow] = []
    for line in text.splitlines(keepends=True):
        if line.endswith("}\n"):
            raw = json.loads(line)
            kind = _KINDS[raw.pop("kind")]
            rows.append(kind(**{field.name: raw.get(field.name) for field in fields(kind)}))
    return rows
