"""Code blocks of a Markdown reply, as models write them.

A fence closes only with its own character and at least its own length. Where the text up to the
first closing fence is no program, later ones are tried, for a docstring may hold fences itself;
which end is right is decided by parsing, so a block knows whether it is a program.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from ddtree_tune.core.source import parse

_OPEN = re.compile(r"^(?P<before>[^`~\n]*?)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
_MARGIN = re.compile(r"^[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)?$")
_LANGUAGE = re.compile(r"^[ \t]*\{?\.?(?P<name>[A-Za-z][\w+#-]*)")
_CODE_START = re.compile(r"^(?:def|class|import|from|async|return|print|if|for|while|lambda|@\w+)\b|^@\w")
_MOST_ENDS = 12
"""Closing fences tried for one block: a docstring holds a few at most."""

PYTHON = frozenset({"python", "python3", "python2", "py", "py3", "pycon", "ipython", "python-repl", "doctest", "pyi"})
"""Languages that are Python, in lower case."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    first_line: int
    """Index of the line of the opening fence."""
    body_end: int
    """Index of the first line that is not the body's."""
    end_line: int
    """Index of the first line behind the block."""
    language: str
    """First word of the info string in lower case; empty without one."""
    body: str
    is_closed: bool

    @property
    def may_be_python(self) -> bool:
        """Whether the info string allows Python."""
        return not self.language or self.language in PYTHON


@dataclass(frozen=True, slots=True)
class _Opening:
    margin: str
    fence: str
    language: str
    rest: str
    """Code on the line of the fence itself."""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a text in order."""
    lines = text.split("\n")
    found = []
    at = 0
    while at < len(lines):
        opening = _opening(lines[at])
        if opening is None:
            at += 1
            continue
        block = _block(lines, at, opening)
        found.append(block)
        at = block.end_line
    return found


def is_fence(line: str) -> bool:
    """Whether a line holds a fence and nothing that could be code before it."""
    opening = _opening(line)
    return opening is not None and not opening.rest


def _opening(line: str) -> _Opening | None:
    match = _OPEN.match(line)
    if match is None:
        return None
    before, fence, info = match["before"], match["fence"], match["info"]
    language = ""
    rest = info.strip()
    if rest.endswith(fence) and len(rest) > len(fence):
        rest = rest[: -len(fence)].rstrip()
    elif "`" in info and fence[0] == "`":
        return None  # inline code
    elif not _MARGIN.match(before) and info.strip() and info.split()[0].lower() not in PYTHON:
        return None  # prose with three backticks
    if not _CODE_START.match(rest) and (named := _LANGUAGE.match(rest)):
        language = named["name"].lower()
        rest = rest[named.end() :].strip()
        if language == "python" and rest[:2].strip() in {"2", "3"}:
            rest = rest[1:].strip()
    if not _CODE_START.match(rest) and not _is_whole(info, fence):
        rest = ""  # attributes
    return _Opening(before if _MARGIN.match(before) else "", fence, language, rest)


def _is_whole(info: str, fence: str) -> bool:
    """Whether a line opens and closes its block."""
    return info.strip().endswith(fence) and info.strip() != fence


def _block(lines: list[str], at: int, opening: _Opening) -> Block:
    """The block that opens on line ``at``, ended where its body is a program if that is anywhere."""
    if _is_whole(lines[at].partition(opening.fence)[2], opening.fence):
        return Block(at, at + 1, at + 1, opening.language, opening.rest, is_closed=True)
    ends = _ends(lines, at, opening)
    for end in ends:
        if end.block.body.strip() and parse(end.block.body) is not None:
            return end.block
    return min(ends, key=lambda end: end.rank).block


@dataclass(frozen=True, slots=True)
class _End:
    block: Block
    rank: int
    """How sure an end it is where no body is a program; 0 is a closing fence on its own line."""


def _ends(lines: list[str], at: int, opening: _Opening) -> list[_End]:
    """The block for each place where it may end, nearest first, the end of the text last."""
    closing = re.compile(rf"^(?P<code>.*?){re.escape(opening.fence[0])}{{{len(opening.fence)},}}[ \t]*$")
    head = [opening.rest] if opening.rest else []
    found: list[_End] = []

    def end(stop: int, rank: int, glued: list[str], *, behind: int) -> None:
        body = _body(head + lines[at + 1 : stop] + glued, opening)
        found.append(_End(Block(at, stop, stop + behind, opening.language, body, is_closed=rank < 2), rank))

    for number in range(at + 1, len(lines)):
        if len(found) == _MOST_ENDS:
            return found
        if match := closing.match(lines[number]):
            alone = _MARGIN.match(match["code"]) is not None
            end(number, 0 if alone else 1, [] if alone else [match["code"]], behind=1)
        elif (again := _opening(lines[number])) is not None:
            # Another block begins, or something stands behind the closing fence.
            end(number, 2, [], behind=0 if again.language else 1)
    end(len(lines), 3, [], behind=0)
    return found


def _body(lines: list[str], opening: _Opening) -> str:
    """The block's text without the margin of its fence."""
    if ">" in opening.margin:
        return "\n".join(re.sub(r"^[ \t]*>[ \t]?", "", line) for line in lines)
    width = len(opening.margin.expandtabs(4))
    if not width:
        return "\n".join(lines)
    cut = [line[min(width, len(line) - len(line.lstrip(" "))) :] for line in lines]
    return "\n".join(cut) if any(line.startswith(" ") for line in lines) else textwrap.dedent("\n".join(lines))
