"""Real text that every Python has: its own library as code, its own manual as prose.

Read from the running interpreter, so nothing is shipped or fetched; the hash says whether two
machines had the same text.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ddtree_tune.core.errors import LoadError, boundary

_LONGEST_LINE = 120
"""Longer lines are tables and literals; a slice could not be cut to length at their ends."""
_LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "idle_test", "turtledemo", "lib2to3", "encodings", "pydoc_data", "ensurepip"}
    | {"site-packages", "dist-packages", "__pycache__"}
)
"""Not the library itself, or mostly tables."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Lines of code and of prose, each without its line end."""

    code: tuple[str, ...]
    prose: tuple[str, ...]
    sha256: str

    @classmethod
    def of(cls, code: str, prose: str) -> Corpus:
        """Split two texts into lines and name them by their hash."""
        sha = hashlib.sha256(f"{code}\0{prose}".encode()).hexdigest()
        return cls(_lines(code), _lines(prose), sha)


def interpreter_corpus() -> Corpus:
    """The standard library's source and its language reference.

    Raises:
        LoadError: this interpreter comes without them.
    """
    root = Path(sysconfig.get_path("stdlib"))
    with boundary(LoadError, f"read the standard library below {root}"):
        files = sorted(path for path in root.rglob("*.py") if not _LEFT_OUT.intersection(path.relative_to(root).parts))
        code = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
        prose = "\n".join(topics[name] for name in sorted(topics))
    if not files:
        raise LoadError(f"prompts need the standard library as source below {root}, but got no file; give load.prompts")
    return Corpus.of(code, prose)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in text.splitlines() if len(line) <= _LONGEST_LINE)
