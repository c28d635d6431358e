"""Finds the draft-tree settings that serve a model fastest.

core decides and touches nothing; node acts on one machine; cluster is Ray; builtin is the embedded
engine; trial tells the story of one configuration on one node; run and cli are the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ddtree_tune.node.results import Results

__version__ = "0.1.0"


def load(path: str | Path) -> Results:
    """Open the results folder of a sweep, at any moment of it.

    Args:
        path: the folder, or a URI that pyarrow knows.

    Returns:
        Its tables as Arrow has them, and its conclusion; see ``node/results.py``.

    Raises:
        SpecError: no trial and no spec lies there.
        StoreError: it cannot be read.
    """
    from ddtree_tune.node import results  # noqa: PLC0415 - the package's name alone must cost nothing

    return results.load(path)
