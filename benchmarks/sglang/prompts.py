"""The prompts, and what the built-in engine does with them, as ``reference.py`` has kept it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

FILE = Path(__file__).with_name("reference.parquet")
MAX_TOKENS = 256
"""Of every reply."""
CHECK = Path(__file__).with_name("check.parquet")
"""Short questions, and one long prompt at the end that has no reply."""
CHECK_TOKENS = 96
"""Of every reply to those."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt and its reference."""

    family: str
    text: str
    """With the chat template."""
    ids: list[int]
    reply: list[int]
    """Greedy tokens in float32, up to their natural end or the file's most."""
    steps: dict[str, int]
    """Verify steps by ``budget/topk``."""


def read(limit: int | None = None, file: Path = FILE) -> list[Prompt]:
    """A kept reference."""
    return [
        Prompt(row["family"], row["text"], row["ids"], row["reply"], dict(row["steps"]))
        for row in pq.read_table(file).to_pylist()[:limit]
    ]
