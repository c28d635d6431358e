"""Damage that transport and habit do to code, undone only where that makes it a program.

A program that parses as it stands is never touched, and every repair has a name that goes into
the record. String contents stay as they are, but for a reply that was escaped as a whole.
"""

from __future__ import annotations

import html
import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from ddtree_tune.core.source import outside_literals, parse

if TYPE_CHECKING:
    from collections.abc import Callable

_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\u00ad]")
_PROMPT = re.compile(r"^\s*(?:>>>|\.\.\.)(?: (?P<code>.*)|$)")


class Repaired(NamedTuple):
    """Code and what was done to it."""

    code: str
    note: str
    """Empty if nothing was done."""


def repair(code: str) -> Repaired:
    """Make a program of damaged code, or give it back as it is."""
    if parse(code) is not None:
        return Repaired(code, "")
    tried = code
    notes = []
    for change, note in _CHANGES:
        changed = change(tried)
        if changed == tried:
            continue
        tried = changed
        notes.append(note)
        if parse(tried) is not None and tried.strip():
            return Repaired(tried, ", ".join(notes))
    return Repaired(code, "")


def _transcript(code: str) -> str:
    """Code of an interpreter session; lines without a prompt are its output."""
    lines = [line for line in code.split("\n") if line.strip()]
    if not lines or not lines[0].lstrip().startswith(">>>"):
        return code
    return "\n".join(match["code"] or "" for line in lines if (match := _PROMPT.match(line))) + "\n"


def _visible_spaces(code: str) -> str:
    return outside_literals(code, lambda part: _INVISIBLE.sub("", _SPACES.sub(" ", part)))


def _unescaped(code: str) -> str:
    return html.unescape(code)


_CHANGES: tuple[tuple[Callable[[str], str], str], ...] = (
    (_visible_spaces, "odd spaces replaced"),
    (textwrap.dedent, "dedented"),
    (_transcript, "interpreter prompts removed"),
    (_unescaped, "HTML entities resolved"),
)
