"""Python values as plain data; ``rebuild`` is the way back.

A value becomes a flat table of nodes: ``[kind, …]`` with children that are scalars or ``[index]``.
Sharing, cycles, mutation of arguments and deep nesting survive. Whatever is of no kind named here
stays where it is and is represented by a reference. Subclasses of built-in types travel as their
plain base, so an overridden ``__eq__`` stays behind.
"""

from __future__ import annotations

import builtins
import collections
import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Node = list[Any]
Graph = dict[str, Any]

SCALARS = (bool, int, float, str)
SEQUENCES: dict[str, type] = {"list": list, "set": set, "tuple": tuple, "frozenset": frozenset}
MAPPINGS: dict[str, type] = {"dict": dict, "OrderedDict": collections.OrderedDict, "Counter": collections.Counter}
NUMBERS = {"Decimal": "decimal", "Fraction": "fractions"}
"""Types that are made from their text, and their modules, imported when needed."""
TIMES = {
    "datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond"),
    "date": ("year", "month", "day"),
    "time": ("hour", "minute", "second", "microsecond"),
    "timedelta": ("days", "seconds", "microseconds"),
}
"""Types of ``datetime``, imported when needed, and their arguments."""
FUNCTIONS = (abs, all, any, bin, chr, divmod, hash, hex, len, max, min, oct, ord, pow, repr, round, sorted, sum)
"""Functions that travel by name; they do nothing but compute."""
SINGLES = {"Ellipsis": ..., "NotImplemented": NotImplemented}
MUTABLE = frozenset({"list", "set", "bytearray", "deque", "defaultdict", "object", *MAPPINGS})
COMPOUND = frozenset({"tuple", "frozenset", "namedtuple", "error", "slice", "keys", "items"})
"""Immutable kinds with children: they can be made only after these."""


class Classes(dict[str, type]):
    """Classes that both sides know by name, of the prompt or of the tests."""

    def __init__(self, module: str) -> None:
        """Set up; every class of ``module`` is known as soon as one of its instances travels."""
        super().__init__()
        self._module = module

    def knows(self, cls: type) -> bool:
        """Whether instances of a class travel by their attributes."""
        if cls.__module__ == self._module:
            self.setdefault(cls.__name__, cls)
        return self.get(cls.__name__) is cls

    def named(self, name: str) -> type:
        """The class of that name; an empty one where only the other side has it."""
        if name not in self:
            self[name] = type(name, (), {})
        return self[name]


class Encoder:
    """Turns one value into a graph."""

    def __init__(
        self, classes: Classes, export: Callable[[object], Node], origins: Mapping[int, int] | None = None
    ) -> None:
        """Prepare.

        Args:
            classes: those whose instances travel by their attributes.
            export: makes the node that refers to an object which stays here.
            origins: ``id`` of each mutable object that came with the request, to its node there.
        """
        self._classes = classes
        self._export = export
        self._origins = origins or {}
        self._index: dict[int, int] = {}
        self._nodes: list[Node] = []
        self._queue: collections.deque[object] = collections.deque()
        self.objects: list[object] = []
        """The object behind each node."""

    def graph(self, value: object) -> Graph:
        """The graph of one value."""
        root = self._item(value)
        while self._queue:
            one = self._queue.popleft()
            number = self._index[id(one)]
            node = self._node(one)
            origin = self._origins.get(id(one))
            self._nodes[number] = node if origin is None else ["@", origin, node]
        return {"root": root, "nodes": self._nodes}

    def _item(self, value: object) -> Any:
        if value is None or type(value) in SCALARS:
            return value
        number = self._index.get(id(value))
        if number is None:
            number = self._index[id(value)] = len(self._nodes)
            self._nodes.append([])
            self.objects.append(value)  # alive, so that its id stays its own
            self._queue.append(value)
        return [number]

    def _items(self, values: Iterable[object]) -> list[Any]:
        return [self._item(value) for value in values]

    def _node(self, value: Any) -> Node:  # noqa: PLR0911, C901, PLR0912 - one line per kind
        kind = type(value)
        name = kind.__name__
        if isinstance(value, enum.Enum) and self._classes.knows(kind):
            return ["enum", name, value.name]
        if isinstance(value, BaseException):
            return ["error", [base.__name__ for base in kind.__mro__], self._items(value.args), _text(value)]
        if self._classes.knows(kind) and not isinstance(value, tuple):
            return ["object", name, self._items(part for pair in _state(value) for part in pair)]
        if isinstance(value, tuple) and kind is not tuple and isinstance(getattr(kind, "_fields", None), tuple):
            return ["namedtuple", name, list(kind._fields), self._items(tuple.__iter__(value))]
        if isinstance(value, str):
            return ["plain", str.__add__(value, "")]
        if isinstance(value, int | float):
            return ["plain", int.__pos__(value) if isinstance(value, int) else float.__pos__(value)]
        if isinstance(value, bytes | bytearray):
            return ["bytes" if isinstance(value, bytes) else "bytearray", bytes(memoryview(value)).hex()]
        if isinstance(value, complex):
            return ["complex", value.real, value.imag]
        for label, base in SEQUENCES.items():
            if isinstance(value, base):
                return [label, self._items(base.__iter__(value))]  # type: ignore[attr-defined]
        if isinstance(value, collections.defaultdict):
            factory = getattr(value.default_factory, "__name__", None)
            return ["defaultdict", factory, self._pairs(dict.items(value))]
        if isinstance(value, dict):
            return [name if name in MAPPINGS else "dict", self._pairs(dict.items(value))]
        if isinstance(value, collections.deque):
            return ["deque", self._items(collections.deque.__iter__(value)), value.maxlen]
        if isinstance(value, type({}.keys()) | type({}.items())):
            return [name.removeprefix("dict_"), self._items(iter(value))]
        if kind is range or kind is slice:
            return [name, self._items((value.start, value.stop, value.step))]
        if NUMBERS.get(name) == kind.__module__:
            return ["number", name, str(value)]
        if kind.__module__ == "datetime" and name in TIMES and getattr(value, "tzinfo", None) is None:
            return ["time", name, *(getattr(value, part) for part in TIMES[name])]
        for single, constant in SINGLES.items():
            if value is constant:
                return ["single", single]
        by_name = str(value.__name__) if kind is type or any(value is one for one in FUNCTIONS) else ""
        if by_name and getattr(builtins, by_name, None) is value:
            return ["builtin", by_name]
        return self._export(value)

    def _pairs(self, pairs: Iterable[tuple[object, object]]) -> list[Any]:
        return self._items(part for pair in pairs for part in pair)


def is_changeable(value: object, classes: Classes) -> bool:
    """Whether a call may change a value in place, as it may a list."""
    if isinstance(value, list | dict | set | bytearray | collections.deque):
        return True
    return classes.knows(type(value)) and not isinstance(value, tuple | enum.Enum | BaseException)


def _state(value: object) -> Iterable[tuple[str, object]]:
    """The attributes of an instance, slots included."""
    yield from getattr(value, "__dict__", {}).items()
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(value, name):
                yield name, getattr(value, name)


def _text(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except Exception:  # noqa: BLE001 - a program's own __str__ may do anything
        return ""
