"""What the plugin wrote down of its steps: milliseconds of their parts, by batch size."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.sglang.rows import Steps

if TYPE_CHECKING:
    from pathlib import Path

_PARTS = ("draft_ms", "tree_ms", "verify_ms", "commit_ms")
_FEWEST = 20
"""Steps of a batch size that are worth a median."""


def read_steps(path: Path, setting: str, gpu: int) -> list[Steps]:
    """Medians by batch size of the steps in CUDA graphs, and of the others, where there are enough.

    Args:
        path: JSON lines, a step each.
        setting: that wrote it.
        gpu: it ran on.
    """
    kinds: dict[tuple[int, bool], list[dict[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            step = json.loads(line)
            kinds.setdefault((int(step["batch"]), bool(step["graphs"])), []).append(step)
    return [
        Steps(setting, gpu, batch, graphs, len(steps), *(_middle(steps, part) for part in _PARTS))
        for (batch, graphs), steps in sorted(kinds.items())
        if len(steps) >= _FEWEST
    ]


def _middle(steps: list[dict[str, Any]], part: str) -> float | None:
    values = [step[part] for step in steps if step.get(part) is not None]
    return median(values) if values else None
