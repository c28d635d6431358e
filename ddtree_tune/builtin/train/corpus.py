"""Code and prose of the standard library, which pads prompts to any length.

Prose is the manual's topics (`pydoc_data`) and the docstrings. Every fifth file and topic is held
out, so that what is measured was not trained on. Needs the standard library only.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from random import Random

    from ddtree_tune.builtin.train.tasks import Split

Kind = Literal["code", "prose"]

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "encodings", "turtledemo"}
HELD_OUT_EVERY = 5
SHORTEST = 2000
"""Files and topics with fewer characters are left out."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The text of one split."""

    code: str
    prose: str

    def window(self, rng: Random, kind: Kind, characters: int) -> str:
        """Cut a stretch that starts at a line, mostly, and ends anywhere.

        Args:
            rng: the only source of randomness.
            kind: which text to cut from.
            characters: its length, at most; the text itself when that is shorter.
        """
        text = self.code if kind == "code" else self.prose
        start = rng.randrange(max(1, len(text) - characters))
        if rng.random() < 0.8:
            start = text.find("\n", start) + 1
        return text[start : start + characters].strip("\n")


def clean(text: str) -> str:
    """Drop lines that are not ASCII or longer than a screen, and runs of empty lines."""
    lines = [line.rstrip() for line in text.replace("\f", "").split("\n") if line.isascii() and len(line) < 100]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))


def library_files() -> list[str]:
    """Read the standard library's modules in the order of their paths."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in root.rglob("*.py") if not LEFT_OUT & set(path.relative_to(root).parts)]
    return [path.read_text(encoding="utf-8", errors="ignore") for path in sorted(paths)]


def docstrings(source: str) -> str:
    """Join the longer docstrings of a module, its classes and its functions."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, holders)]
    return "\n\n".join(text for text in found if len(text) > 200)


def load_corpus(split: Split) -> Corpus:
    """Read one split of the standard library of the Python that runs this."""
    wanted = split == "held_out"
    files = [text for text in library_files() if len(text) > SHORTEST]
    files = [text for at, text in enumerate(files) if (at % HELD_OUT_EVERY == 0) == wanted]
    pages = [text for _, text in sorted(topics.items()) if len(text) > SHORTEST]
    pages = [text for at, text in enumerate(pages) if (at % HELD_OUT_EVERY == 0) == wanted]
    code = "\n\n\n".join(clean(text) for text in files)
    prose = "\n\n".join(clean(text) for text in [*pages, *filter(None, map(docstrings, files))])
    return Corpus(code, prose)
