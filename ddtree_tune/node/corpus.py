"""Real text to cut prompts from: what every Python has, or a user's own folder.

The running interpreter has a library as code and a manual as prose, so nothing is shipped or
fetched; the hash says whether two machines had the same text.
"""

from __future__ import annotations

import hashlib
import sysconfig
import textwrap
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import LoadError, boundary

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_LINE = 120
"""A slice ends at a line end; with longer lines it could not be cut to length."""
_LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "idle_test", "turtledemo", "lib2to3", "encodings", "pydoc_data", "ensurepip"}
    | {"site-packages", "dist-packages", "__pycache__"}
)
"""Not the library itself, or mostly tables."""
PROSE = frozenset({".txt", ".md", ".markdown", ".rst", ".adoc", ".tex", ".org"})
CODE = frozenset(
    {".py", ".pyi", ".ipynb", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".rs", ".go", ".java", ".kt"}
    | {".scala", ".cs", ".swift", ".js", ".jsx", ".ts", ".tsx", ".vue", ".rb", ".php", ".pl", ".lua", ".r", ".jl"}
    | {".hs", ".ml", ".ex", ".sh", ".sql", ".html", ".css", ".xml", ".json", ".yaml", ".yml", ".toml", ".cmake"}
)
"""Endings of a user's files that are read; all others are passed over."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Lines of code and of prose, each without its line end; one of them may be empty."""

    code: tuple[str, ...]
    prose: tuple[str, ...]
    sha256: str

    @classmethod
    def of(cls, code: str, prose: str) -> Corpus:
        """Split two texts into lines and name them by their hash.

        Long lines of prose are broken at a word, those of code are tables and literals and left out.
        """
        sha = hashlib.sha256(f"{code}\0{prose}".encode()).hexdigest()
        lines = tuple(line.rstrip() for line in code.splitlines() if len(line) <= _LONGEST_LINE)
        broken = (textwrap.wrap(line, _LONGEST_LINE) or [""] for line in prose.splitlines())
        return cls(lines, tuple(part.rstrip() for parts in broken for part in parts), sha)


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


def folder_corpus(root: Path) -> Corpus:
    """A user's text files, in the order of their paths; hidden ones are passed over.

    Raises:
        LoadError: a file is not UTF-8 or cannot be read, or there is no text at all.
    """
    with boundary(LoadError, f"read the text files below {root}"):
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        found = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(root).parts)]
        code, prose = (
            "\n".join(_read(path) for path in found if path.suffix.lower() in endings) for endings in (CODE, PROSE)
        )
    corpus = Corpus.of(code, prose)
    if not any(corpus.code) and not any(corpus.prose):
        raise LoadError(f"{root} must hold text files such as .txt, .md or .py, but got none among {len(found)} files")
    return corpus


def spread(lines: Sequence[str], most: int) -> Sequence[str]:
    """Lines from all over a text: how dense its beginning is says little of the rest."""
    return lines[:: max(1, len(lines) // most)][:most]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} must be UTF-8, but got {error.reason} at byte {error.start}; convert it") from None
