"""The prompts, and what the built-in engine does with them, as ``reference.py`` has kept it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

FILE = Path(__file__).with_name("reference.parquet")
MAX_TOKENS = 256
"""Of every reply."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt and its reference."""

    family: str
    text: str
    """With the chat template."""
    ids: list[int]
    reply: list[int]
    """Greedy tokens in float32, up to their natural end or MAX_TOKENS."""
    steps: dict[str, int]
    """Verify steps by ``budget/topk``."""


def read(limit: int | None = None) -> list[Prompt]:
    """The kept reference."""
    return [
        Prompt(row["family"], row["text"], row["ids"], row["reply"], dict(row["steps"]))
        for row in pq.read_table(FILE).to_pylist()[:limit]
    ]
