"""Questions about Python source, answered by parsing and never by running it.

Nothing here raises on any text: what does not parse is answered with None or emptiness.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_CHARS = 200_000
"""Longer text is no answer to a coding problem; parsing it would cost seconds."""

Function = ast.FunctionDef | ast.AsyncFunctionDef

_LITERAL = re.compile(
    r"""[rbuf]{0,2}(?:'''[\s\S]*?'''|\"""[\s\S]*?\"""|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")|\#[^\n]*""",
    re.IGNORECASE,
)
"""A string literal or a comment."""


@lru_cache(maxsize=256)
def parse(code: str) -> ast.Module | None:
    """The syntax tree, or None if this is not a Python program."""
    if len(code) > MAX_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is the program's business
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def bindings(statement: ast.stmt) -> Iterator[str]:
    """Names that a module-level statement binds, inside ``if`` and ``try`` as well."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Import() | ast.ImportFrom():
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        case ast.Assign():
            yield from (node.id for target in statement.targets for node in ast.walk(target) if _is_name(node))
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            yield name
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
            parts = [statement, *(child for child in ast.iter_child_nodes(statement) if _is_handler(child))]
            children = [child for part in parts for child in ast.iter_child_nodes(part)]
            yield from (name for child in children if isinstance(child, ast.stmt) for name in bindings(child))


def _is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _is_handler(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler)


def defines(tree: ast.Module | None, name: str) -> bool:
    """Whether a program binds ``name`` at module level."""
    return tree is not None and any(name == bound for statement in tree.body for bound in bindings(statement))


def defines_anything(tree: ast.Module | None) -> bool:
    """Whether a program holds a function, a class or a lambda with a name."""
    return tree is not None and any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda))
        for node in ast.walk(tree)
    )


def is_stub(tree: ast.Module, name: str) -> bool:
    """Whether the last function ``name`` only says what it will do."""
    found = [node for node in tree.body if isinstance(node, Function) and node.name == name]
    return bool(found) and all(_idle(statement) for statement in found[-1].body)


def returns(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function itself returns or yields; one inside it does not count."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def _idle(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return "NotImplementedError" in ast.dump(statement)
    return isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def unresolved(code: str) -> set[str]:
    """Global names that a program uses and neither it nor Python defines."""
    tree = parse(code)
    if tree is None:
        return set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            top = symtable.symtable(code, "answer", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    used: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table is top
        used |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (is_module or s.is_global())}
    bound = {name for statement in tree.body for name in bindings(statement)}
    return used - bound - set(dir(builtins))


@dataclass(frozen=True, slots=True)
class Statement:
    """One module-level statement that binds names."""

    text: str
    names: frozenset[str]
    is_star: bool
    """Whether it is ``from module import *``."""


def providers(code: str) -> list[Statement]:
    """The imports, definitions and assignments of a program, in order."""
    tree = parse(code)
    lines = code.split("\n")
    found = []
    for node in tree.body if tree else ():
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.Assign | ast.AnnAssign | Function):
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        names = frozenset(bindings(node))
        text = "\n".join(lines[first - 1 : node.end_lineno])
        found.append(Statement(text, names, "*" in names))
    return found


def outside_literals(code: str, change: Callable[[str], str]) -> str:
    """Apply ``change`` to what is neither a string nor a comment."""
    parts: list[str] = []
    at = 0
    for literal in _LITERAL.finditer(code):
        parts += [change(code[at : literal.start()]), literal.group()]
        at = literal.end()
    return "".join([*parts, change(code[at:])])
