"""Milliseconds of each part of a decode step on the GPU, when DDTREE_TUNE_STEP_TIMES names a file.

A line of JSON per step: ``batch`` requests, ``graphs`` whether drafter and target were replayed, and

- ``draft_ms``: block preparation, drafter and output head,
- ``tree_ms``: trees and mask,
- ``verify_ms``: the target,
- ``commit_ms``: choices, walk, moves, the drafter's cache.

The end of drafting lies inside the drafter's CUDA graph: that event belongs to the graph and is
recorded anew by each replay, so it is read before the next one starts. Everything else is read when
it is there. Nothing of this exists where the variable is not set.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

VARIABLE = "DDTREE_TUNE_STEP_TIMES"


@dataclass(slots=True)
class _Step:
    """Events of one step, in order."""

    batch: int
    start: Any
    handed: Any = None
    verified: Any = None
    committed: Any = None
    graphs: bool = False
    draft_ms: float = 0.0
    tree_ms: float = 0.0


class StepTimes:
    """Times steps on the current stream.

    Args:
        path: a file that is not there yet.

    Raises:
        ValueError: the file is there, or cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._out = new_file(path, VARIABLE)
        self._drafted = torch.cuda.Event(enable_timing=True, external=True)
        self._steps: deque[_Step] = deque()

    def begin(self, batch: int) -> None:
        """A step starts.

        Args:
            batch: its requests.
        """
        if self._steps:
            last = self._steps[-1]
            last.handed.synchronize()  # it came before the last verify, so this seldom waits
            last.draft_ms = last.start.elapsed_time(self._drafted)
            last.tree_ms = self._drafted.elapsed_time(last.handed)
        while self._steps and self._steps[0].committed.query():
            self._write(self._steps.popleft())
        self._steps.append(_Step(batch, _now()))

    def drafted(self) -> None:
        """Candidates are there; called while the drafter's graph is captured."""
        self._drafted.record()

    def handed(self) -> None:
        """The trees go to the target."""
        self._steps[-1].handed = _now()

    def verified(self, *, graphs: bool) -> None:
        """The target has answered.

        Args:
            graphs: whether drafter and target were replayed from graphs.
        """
        self._steps[-1].graphs = graphs
        self._steps[-1].verified = _now()

    def committed(self) -> None:
        """The step is over."""
        self._steps[-1].committed = _now()

    def _write(self, step: _Step) -> None:
        parts = {
            "batch": step.batch,
            "graphs": step.graphs,
            "draft_ms": step.draft_ms,
            "tree_ms": step.tree_ms,
            "verify_ms": step.handed.elapsed_time(step.verified),
            "commit_ms": step.verified.elapsed_time(step.committed),
        }
        self._out.write(json.dumps(parts) + "\n")
        self._out.flush()


def new_file(path: str, variable: str) -> Any:
    """Open a file for what a variable asks for.

    Args:
        path: of the file.
        variable: that named it, for the error sentence.

    Raises:
        ValueError: it is there already, or cannot be made.
    """
    try:
        return Path(path).open("x", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{variable} must name a file that can be made and is not there, but got {error}") from None


def _now() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
