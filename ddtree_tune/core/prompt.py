"""The code that a problem's prompt holds: what an answer may use and what it may complete."""

from __future__ import annotations

import ast

from ddtree_tune.core.fences import blocks
from ddtree_tune.core.source import Function, bindings, parse

_KEPT = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Assign, ast.AnnAssign, *Function.__args__)


def prompt_code(prompt: str) -> str:
    """The Python source of a prompt: all of it, or its fenced blocks.

    A function at the end may lack its body; it gets ``pass``.

    Returns:
        Source that parses; empty if the prompt is no code and holds none.
    """
    fenced = "\n\n".join(block.body for block in blocks(prompt) if block.may_be_python)
    for source in (prompt, fenced):
        for body in ("", "    pass\n"):
            whole = source.rstrip() + "\n" + body
            if source.strip() and parse(whole) is not None:
                return whole
    return ""


def scope_of(prompt: str, entry_point: str) -> str:
    """What a prompt offers to the answer: imports, helpers and constants, not the entry point itself.

    Returns:
        Python source; empty if the prompt offers nothing.
    """
    tree = parse(prompt_code(prompt))
    body = tree.body if tree else []
    kept = [node for node in body if isinstance(node, _KEPT) and entry_point not in set(bindings(node))]
    return "".join(ast.unparse(node) + "\n" for node in kept)
