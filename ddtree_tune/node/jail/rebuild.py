"""Rebuilds values from plain data without running anybody's code.

What arrives is hostile: only the kinds of ``values`` can be made, from data alone, and a table that
is no such value is refused as a whole.
"""

from __future__ import annotations

import builtins
import collections
import importlib
from typing import TYPE_CHECKING, Any

from ddtree_tune.node.jail.channel import GarbledError
from ddtree_tune.node.jail.values import (
    COMPOUND,
    FUNCTIONS,
    MAPPINGS,
    MUTABLE,
    NUMBERS,
    SCALARS,
    SEQUENCES,
    SINGLES,
    TIMES,
    Classes,
    Graph,
    Node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container


def decode(
    graph: Graph,
    classes: Classes,
    refer: Callable[[Node], object],
    originals: list[object] | None = None,
) -> list[Any]:
    """Rebuild a graph.

    Args:
        graph: from an Encoder on the other side.
        classes: those whose instances may be made; an unknown one becomes an empty class.
        refer: makes what stands for an object of the other side, or finds one of ours.
        originals: objects that this graph updates in place, by the number in its ``@`` nodes.

    Returns:
        The root, followed by the object of each node.

    Raises:
        GarbledError: this is no such graph.
    """
    try:
        return _Decoder(graph, classes, refer, originals or []).run()
    except GarbledError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise GarbledError(f"a value cannot be rebuilt: {type(error).__name__}: {error}") from None


class _Decoder:
    def __init__(
        self, graph: Graph, classes: Classes, refer: Callable[[Node], object], originals: list[object]
    ) -> None:
        self._root = graph["root"]
        self._nodes: list[Node] = list(graph["nodes"])
        self._classes = classes
        self._refer = refer
        self._made: dict[int, Any] = {}
        for number, node in enumerate(self._nodes):
            if node[0] == "@":
                self._nodes[number] = node[2]
                self._made[number] = _emptied(originals[node[1]], node[2])

    def run(self) -> list[Any]:
        for number, node in enumerate(self._nodes):
            if number not in self._made and node[0] not in COMPOUND:
                self._made[number] = self._shell(node)
        for number, node in enumerate(self._nodes):
            if node[0] in COMPOUND:
                self._compound(number)
        # Keys of a dict may be objects, whose hash may need their attributes.
        for kinds in ({"object"}, MUTABLE - {"object"}):
            for number, node in enumerate(self._nodes):
                if node[0] in kinds:
                    _fill(self._made[number], node, self._values)
        return [self._value(self._root), *(self._made[number] for number in range(len(self._nodes)))]

    def _value(self, item: Any) -> Any:
        if isinstance(item, list):
            (number,) = item
            return self._made[number]
        if item is None or isinstance(item, SCALARS):
            return item
        raise GarbledError("an item must be a scalar or a reference")

    def _values(self, items: list[Any]) -> list[Any]:
        return [self._value(item) for item in items]

    def _shell(self, node: Node) -> Any:  # noqa: PLR0911 - one line per kind
        """A leaf, or a mutable value that is filled later."""
        kind = node[0]
        simple = {"list": list, "set": set, "bytearray": bytearray, **MAPPINGS}
        if kind in simple:
            return simple[kind]()
        if kind == "plain":
            return node[1]
        if kind == "bytes":
            return bytes.fromhex(node[1])
        if kind == "complex":
            return complex(node[1], node[2])
        if kind == "range":
            return range(*node[1])
        if kind == "deque":
            return collections.deque(maxlen=node[2])
        if kind == "defaultdict":
            factories = {one.__name__: one for one in (int, float, str, list, dict, set, bool)}
            return collections.defaultdict(factories.get(node[1]))
        return self._rare(node)

    def _rare(self, node: Node) -> Any:
        kind = node[0]
        makers: dict[str, Callable[[], object]] = {
            "object": lambda: object.__new__(self._classes.named(node[1])),
            "enum": lambda: self._classes[node[1]].__members__[node[2]],  # type: ignore[attr-defined]
            "number": lambda: getattr(importlib.import_module(NUMBERS[node[1]]), node[1])(node[2]),
            "time": lambda: getattr(importlib.import_module("datetime"), _one_of(TIMES, node[1]))(*node[2:]),
            "single": lambda: SINGLES[node[1]],
            "builtin": lambda: _builtin(node[1]),
        }
        return makers[kind]() if kind in makers else self._refer(node)

    def _compound(self, start: int) -> None:
        """Make an immutable value after its children; a cycle of such is a forgery."""
        stack = [start]
        waiting: set[int] = set()
        while stack:
            number = stack[-1]
            node = self._nodes[number]
            needs = [item[0] for part in node[1:] if isinstance(part, list) for item in part if isinstance(item, list)]
            missing = [need for need in needs if need not in self._made]
            if number in self._made:
                stack.pop()
            elif not missing:
                self._made[number] = self._finished(node)
            elif number in waiting:
                raise GarbledError("an immutable value must not hold itself")
            else:
                waiting.add(number)
                stack += missing

    def _finished(self, node: Node) -> Any:
        kind = node[0]
        if kind == "error":
            return rebuilt_error(node[1], self._values(node[2]), node[3], self._classes)
        values = self._values(node[-1])
        if kind == "namedtuple":
            cls = self._classes.get(node[1]) or collections.namedtuple(node[1], node[2])  # noqa: PYI024
            return tuple.__new__(cls, values)
        if kind == "slice":
            return slice(*values)
        if kind == "keys":
            return dict.fromkeys(values).keys()
        return dict(values).items() if kind == "items" else SEQUENCES[kind](values)


def _one_of(allowed: Container[str], name: str) -> str:
    if name not in allowed:
        raise GarbledError(f"{name} must not be made")
    return name


def _builtin(name: str) -> object:
    found: object = getattr(builtins, name)
    if isinstance(found, type) or any(found is one for one in FUNCTIONS):
        return found
    raise GarbledError(f"{name} must not be passed on")


def _emptied(original: Any, node: Node) -> Any:
    """An object of ours, cleared to take its new contents, if those are of its kind."""
    kind = node[0]
    named = type(original).__name__ == (node[1] if kind == "object" else kind)
    if kind not in MUTABLE or not named:
        raise GarbledError("an argument changed its type")
    if kind == "object":
        getattr(original, "__dict__", {}).clear()
    else:
        original.clear()
    return original


def _fill(value: Any, node: Node, values: Callable[[list[Any]], list[Any]]) -> None:
    kind = node[0]
    if kind == "bytearray":
        value.extend(bytes.fromhex(node[1]))
        return
    parts = values(node[1] if kind in {"list", "set", "deque", *MAPPINGS} else node[2])
    if kind in {"list", "deque"}:
        value.extend(parts)
    elif kind == "set":
        value.update(parts)
    elif kind == "object":
        for name, part in zip(parts[::2], parts[1::2], strict=True):
            object.__setattr__(value, name, part)
    else:
        for key, part in zip(parts[::2], parts[1::2], strict=True):
            value[key] = part


def rebuilt_error(names: list[str], args: list[object], text: str, classes: Classes) -> BaseException:
    """An exception of the same name, under the nearest base that both sides know."""
    for name in names:
        known = classes.get(name) or getattr(builtins, str(name), None)
        if isinstance(known, type) and issubclass(known, BaseException):
            break
    else:
        known = Exception
    exact = known.__name__ == names[0]
    cls: type[BaseException] = known if exact else type(str(names[0]), (known,), {"__str__": lambda _: text})
    error: BaseException = cls.__new__(cls, *args)
    error.args = tuple(args)
    return error
