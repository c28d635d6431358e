"""From an answer's text to the program in it, or the reason why there is none.

What counts is what a block defines, not where it stands: the last block that defines the entry
point is the program, helpers and imports that it lacks come from the other blocks, and examples,
tests and shell output stay out. The thinking must have been split off (``core.thinking``). Nothing
here raises on any text, and extracting from an extracted program gives the same program.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.fences import blocks, is_fence
from ddtree_tune.core.prompt import prompt_code
from ddtree_tune.core.repair import repair
from ddtree_tune.core.source import (
    Function,
    Statement,
    defines,
    defines_anything,
    is_stub,
    parse,
    providers,
    returns,
    unresolved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HEAD = re.compile(r"^(?:async\s+def|def|class)\s+(\w+)", re.MULTILINE)
_STARTS = re.compile(r"^(?:def|class|import|from|async|@\w)(?:\b|\w)")
_GOES_ON = re.compile(
    r"^(?:\s|$|\#|[)\]}]|(?:else|try|finally)\s*:|(?:elif|except|if|for|while|with)\b.*:\s*$|(?:return|print|assert)\b)"
)
_ASSIGNS = re.compile(r"^\w+\s*(?::[^=]+)?=[^=]")
_WRAPPER = re.compile(r"</?(?:pre|code|answer|solution|output)\b[^<>\n]*>|\[/?(?:PYTHON|CODE)\]", re.IGNORECASE)
_MOST_PARTS = 8
"""Module-level lines that one statement may span, as a decorator or a text in quotes does."""
_MOST_LINES = 4000
"""Lines searched where an answer has no usable fence."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The program of one answer."""

    code: str | None
    """Ends in one line break; None if there is none."""
    is_complete: bool = False
    """Whether the text goes on behind the program, so that a cut at the end cannot have hit it."""
    notes: tuple[str, ...] = ()
    """What was done to find it."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the answer that may be the program."""

    code: str
    is_closed: bool
    may_be_python: bool = True
    note: str = ""


def extract(answer: str, entry_point: str, prompt: str = "") -> Extraction:
    """Find the program of an answer.

    Args:
        answer: what the model said, thinking removed.
        entry_point: the name that the program must define.
        prompt: the problem's code, which a completion may continue.

    Returns:
        The program. Where nothing defines the entry point it is the last program that defines
        anything, and where nothing is a program, the code that was meant as one.
    """
    found = _extract(answer, entry_point, prompt)
    # Code that is no program may hold fences of its own, which a second look would take apart.
    for _ in range(4):
        if found.code is None or parse(found.code) is not None:
            return found
        again = _extract(found.code, entry_point, prompt)
        if again.code == found.code:
            return found
        found = Extraction(again.code, found.is_complete, (*found.notes, *again.notes))
    return Extraction(None, notes=("the code falls apart",))


def _extract(answer: str, entry_point: str, prompt: str) -> Extraction:
    text = _plain(answer)
    if defines(parse(text), entry_point) or _bare(text, entry_point) == text:
        return Extraction(_tidy(text))
    pieces = _fenced(text)
    if found := _choose(pieces, entry_point):
        return found
    broken = [piece for piece in pieces if piece.may_be_python and _is_broken(piece, entry_point)]
    if broken:
        return Extraction(_tidy(broken[-1].code), is_complete=True)
    for others in (_segments(text), _chunks(text), _chunks(re.sub(r"(?m)^(?: {4}|\t)", "", text))):
        if found := _choose(others, entry_point):
            return found
    whole = _Piece(text, is_closed=False)
    return _completion([*pieces, whole], entry_point, prompt) or _second_best(pieces, whole, entry_point)


def _plain(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").replace("\n\ufeff", "\n")
    return re.sub(r"\A\s*python3?[ \t]*\n", "", text, flags=re.IGNORECASE)


def _tidy(code: str) -> str:
    """Code without blank lines around it; form feeds and the like stay, they may be data."""
    return re.sub(r"\A(?:[ \t]*\n)+", "", code).rstrip(" \t\n") + "\n"


def _fenced(text: str) -> list[_Piece]:
    """The fenced blocks; one that was never closed is cut where prose begins."""
    last = len(text.split("\n"))
    found = []
    for block in blocks(text):
        code, note = repair(block.body.lstrip("\ufeff"))
        closed = block.is_closed or block.end_line < last
        found.append(_Piece(code, closed, block.may_be_python, note))
        if not block.is_closed and parse(code) is None:
            found += _chunks(code)
    return found


def _segments(text: str) -> list[_Piece]:
    """What stands between fence lines, whichever of them opens: a stray fence shifts the pairs."""
    parts: list[list[str]] = [[]]
    for line in _WRAPPER.sub("\n", text).split("\n"):
        if is_fence(line):
            parts[-1].append(re.split(r"`{3}|~{3}", line)[0])
            parts.append([])
        else:
            parts[-1].append(line)
    repaired = [repair("\n".join(part)) for part in parts]
    return [_Piece(code, number + 1 < len(parts), note=note) for number, (code, note) in enumerate(repaired)]


def _chunks(text: str) -> list[_Piece]:
    """The module-level definitions, imports and assignments that stand in prose, one piece each."""
    lines = [line.rstrip("`") for line in _WRAPPER.sub("\n", textwrap.dedent(text)).split("\n")]
    found = []
    at = 0
    while at < min(len(lines), _MOST_LINES):
        stop = at + 1
        if _STARTS.match(lines[at]) or _ASSIGNS.match(lines[at]):
            for _ in range(_MOST_PARTS):
                reach = _reach(lines, stop)
                code, note = repair("\n".join(lines[at:reach]))
                if parse(code) is not None:
                    found.append(_Piece(code, any(line.strip() for line in lines[reach:]), note=note))
                    stop = reach
                    break
                if reach == len(lines):
                    break
                stop = reach + 1
            else:
                stop = at + 1
        at = stop
    return found


def _reach(lines: Sequence[str], at: int) -> int:
    """Where the statement that line ``at`` continues ends if no string or bracket is open."""
    while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t)]}#"):
        at += 1
    return at


def _choose(pieces: Sequence[_Piece], entry_point: str) -> Extraction | None:
    """The last piece that defines the entry point, with what it needs of the others."""
    fitting = [piece for piece in pieces if defines(parse(piece.code), entry_point)]
    if not fitting:
        return None
    real = [piece for piece in fitting if (tree := parse(piece.code)) and not is_stub(tree, entry_point)]
    main = (real or fitting)[-1]
    others = [piece.code for piece in pieces if piece is not main]
    code, added = _with_needed(_tidy(main.code), others, entry_point)
    notes = [main.note] if main.note else []
    if added:
        notes.append("taken from other blocks: " + ", ".join(sorted(added)))
    return Extraction(code, main.is_closed, tuple(notes))


def _with_needed(code: str, others: Iterable[str], entry_point: str) -> tuple[str, set[str]]:
    """Put before a program what it uses and other blocks define."""
    offers = [statement for other in others for statement in providers(other) if entry_point not in statement.names]
    chosen: list[Statement] = []
    added: set[str] = set()
    missing = unresolved(code)
    while wanted := [one for one in offers if one not in chosen and one.names & missing]:
        name = min(min(one.names & missing) for one in wanted)
        best = [one for one in wanted if name in one.names][-1]
        chosen.append(best)
        added |= best.names & missing
        missing = (missing | unresolved(best.text)) - {bound for one in chosen for bound in one.names}
    if missing:
        chosen += [one for one in offers if one.is_star and one not in chosen]
    if not chosen:
        return code, added
    helpers = [one.text for one in offers if one in chosen]
    head = _future_lines(code)
    lines = code.split("\n")
    return "\n".join([*lines[:head], *dict.fromkeys(helpers), "", "", *lines[head:]]), added


def _future_lines(code: str) -> int:
    """Lines up to the last ``from __future__`` import, before which nothing may stand."""
    tree = parse(code)
    ends = [
        node.end_lineno or 0
        for node in (tree.body if tree else ())
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    return max(ends, default=0)


def _completion(pieces: Iterable[_Piece], entry_point: str, prompt: str) -> Extraction | None:
    """Prompt and body, where the reply is only the body of the prompt's last function."""
    head = prompt_code(prompt)
    tree = parse(head)
    if tree is None or not tree.body or not isinstance(last := tree.body[-1], Function) or last.name != entry_point:
        return None
    if not is_stub(tree, entry_point):
        return None
    head = re.sub(r"\n[ \t]+(?:pass|\.\.\.)\s*\Z", "\n", head)
    for piece in reversed(list(pieces)):
        if not piece.may_be_python or not piece.code.strip():
            continue
        code = piece.code.strip("\n")
        # Servers strip a reply, and with it the indentation of a body's first line.
        for body in (code, " " * 4 + code.lstrip()):
            body = textwrap.indent(textwrap.dedent(body), " " * 4)  # noqa: PLW2901 - the same body
            whole = parse(head + body + "\n")
            if whole is None or len(whole.body) != len(tree.body):
                continue
            function = whole.body[-1]
            if isinstance(function, Function) and returns(function):
                note = "the reply is the body of the prompt's function"
                return Extraction(_tidy(head + body), piece.is_closed, (note,))
    return None


def _is_broken(piece: _Piece, entry_point: str) -> bool:
    """Whether a block is the program and has a syntax error: none of its parts may be taken instead."""
    return (
        piece.is_closed
        and parse(piece.code) is None
        and entry_point in _HEAD.findall(piece.code)
        and not any(is_fence(line) for line in piece.code.split("\n"))
    )


def _second_best(pieces: Sequence[_Piece], whole: _Piece, entry_point: str) -> Extraction:
    """What was meant as the program although it does not define the entry point or is broken."""
    text = whole.code
    python = [piece for piece in pieces if piece.may_be_python and piece.code.strip()]
    if defines_anything(parse(text)):
        python = [whole]
    others = [piece for piece in python if defines_anything(parse(piece.code))]
    if others:
        return Extraction(_tidy(others[-1].code), others[-1].is_closed, tuple(filter(None, (others[-1].note,))))
    if bare := _bare(text, entry_point):
        return Extraction(_tidy(bare), is_complete=False)
    chunks = [chunk for chunk in _chunks(text) if defines_anything(parse(chunk.code))]
    if chunks:
        return Extraction(_tidy(chunks[-1].code), chunks[-1].is_closed)
    broken = [piece for piece in python if parse(piece.code) is None and _HEAD.search(piece.code)]
    return Extraction(_tidy(broken[-1].code), broken[-1].is_closed) if broken else Extraction(None)


def _bare(text: str, entry_point: str) -> str | None:
    """Unfenced code that does not parse: from its first line to where prose begins."""
    lines = text.split("\n")
    heads = [number for number, line in enumerate(lines) if (head := _HEAD.match(line)) and head[1] == entry_point]
    if not heads or parse(text) is not None:
        return None
    first = next(number for number, line in enumerate(lines) if _STARTS.match(line))
    stop = heads[-1] + 1
    while stop < len(lines) and any(rule.match(lines[stop]) for rule in (_GOES_ON, _STARTS, _ASSIGNS)):
        stop += 1
    return "\n".join(line for line in lines[first:stop] if not is_fence(line))
