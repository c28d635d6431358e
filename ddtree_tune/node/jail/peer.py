"""Calls between the two sides: what cannot travel is used where it is.

Each side keeps a table of its objects that the other one holds references to. A call waits for its
answer and serves calls of the other side meanwhile, as callbacks need. Arguments that a call
changes are changed here too.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn

from ddtree_tune.node.jail.channel import Channel, GarbledError, GoneError
from ddtree_tune.node.jail.rebuild import decode
from ddtree_tune.node.jail.values import Classes, Encoder, Graph, Node, is_changeable

Operation = Callable[..., object]

FATAL = (GoneError, GarbledError)
"""What ends a side: it is never an exception of the program or the tests."""
CAME_OVER = "_came_over"
"""Attribute of an exception that the other side raised."""


def _call(target: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """Call, and run a coroutine to its end: awaiting does not cross the channel."""
    result = target(*args, **kwargs)
    if isinstance(result, Coroutine):
        import asyncio  # noqa: PLC0415 - costs more than all the rest, and few need it

        return asyncio.run(result)
    return result


OPERATIONS: dict[str, Operation] = {
    "call": _call,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "hash": hash,
    "getattr": getattr,
    "setattr": setattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "enter": lambda target: target.__enter__(),
    "exit": lambda target: target.__exit__(None, None, None),
    **{
        name: getattr(operator, name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "neg")
    },
}
"""What may be asked of an object on the other side."""
TRUSTED_OPERATIONS: dict[str, Operation] = {
    **{name: OPERATIONS[name] for name in ("call", "iter", "next", "len", "bool", "hash")},
    "eq": operator.is_,
    "ne": operator.is_not,
    "str": object.__repr__,
    "repr": object.__repr__,
}
"""What a program may ask of the tests' objects, as ``list(items)`` or ``if key`` do.

No attribute and no text of theirs leads it to what the tests know.
"""


class Peer:
    """One side's view of the other."""

    def __init__(
        self,
        channel: Channel,
        classes: Classes,
        end: Callable[[Exception], NoReturn],
        *,
        operations: Mapping[str, Operation] = OPERATIONS,
    ) -> None:
        """Set up.

        Args:
            channel: to the other side.
            classes: those whose instances travel by their attributes.
            end: ends this process when the channel is gone or spoilt: nobody may catch that.
            operations: what the other side may ask for.
        """
        self._channel = channel
        self._classes = classes
        self._end = end
        self._operations = operations
        self._ours: list[object] = []
        self._numbers: dict[int, int] = {}
        self._theirs: dict[int, Remote] = {}
        self._lock = threading.RLock()

    def export(self, value: object) -> Node:
        """The node that refers to an object of ours, or of theirs."""
        if type(value) is Remote:
            return ["yours", object.__getattribute__(value, "_number")]
        number = self._numbers.setdefault(id(value), len(self._ours))
        if number == len(self._ours):
            self._ours.append(value)
        return ["theirs", number]

    def request(self, operation: str, target: int, /, *args: object, **kwargs: object) -> Any:
        """Ask the other side to do something with an object of its own.

        Raises:
            BaseException: what was raised there, as far as it can be rebuilt.
        """
        with self._lock:
            try:
                value, raised = self._requested(operation, target, args, kwargs)
            except FATAL as error:
                self._end(error)
        if raised:
            vars(value)[CAME_OVER] = True
            raise value
        return value

    def _requested(
        self, operation: str, target: int, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Any, bool]:
        """The result, and whether it was raised."""
        encoder = Encoder(self._classes, self.export)
        graph = encoder.graph([list(args), kwargs])
        self._channel.send({"do": operation, "on": target, "with": graph})
        while "do" in (message := self._channel.receive()):
            self._serve(message)
        root = self._decoded(message.get("done"), encoder.objects)[0]
        value = root[0] if isinstance(root, list) and root else None
        raised = bool(message.get("raised"))
        if raised and not isinstance(value, BaseException):
            raise GarbledError("only exceptions are raised")
        return value, raised

    def serve(self) -> NoReturn:
        """Do what the other side asks for until it is gone."""
        try:
            while True:
                self._serve(self._channel.receive())
        except FATAL as error:
            self._end(error)

    def _serve(self, message: dict[str, Any]) -> None:
        operation, number = str(message.get("do")), message.get("on")
        if operation not in self._operations or not isinstance(number, int) or not 0 <= number < len(self._ours):
            raise GarbledError("this must not be asked for")
        root, *objects = self._decoded(message.get("with"))
        try:
            result = self._operations[operation](self._ours[number], *root[0], **root[1])
            self._answer(result, objects, raised=False)
        except FATAL:
            raise
        except BaseException as error:  # noqa: BLE001 - a program may raise SystemExit: that is its answer
            self._answer(error, objects, raised=True)

    def _answer(self, result: object, objects: list[object], *, raised: bool) -> None:
        """Send a result, and what became of the arguments."""
        origins = {id(one): number for number, one in enumerate(objects) if is_changeable(one, self._classes)}
        changeable = [objects[number] for number in origins.values()]
        encoder = Encoder(self._classes, self.export, origins)
        self._channel.send({"done": encoder.graph([result, changeable]), "raised": raised})

    def _decoded(self, graph: Graph | None, originals: list[object] | None = None) -> list[Any]:
        if not isinstance(graph, dict):
            raise GarbledError("a message must hold values")
        return decode(graph, self._classes, self._refer, originals)

    def _refer(self, node: Node) -> object:
        kind, number = node
        if kind == "yours":
            return self._ours[number]
        if kind == "theirs":
            return self._theirs.setdefault(number, Remote(self, number))
        raise GarbledError(f"a value of the unknown kind {kind!r}")


class Remote:
    """An object of the other side. It equals nothing but itself and other objects from there.

    No comparison and no arithmetic passes on a value of ours: what a test expects must not reach
    the program.
    """

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ask(self, "getattr", name)

    def __setattr__(self, name: str, value: object) -> None:
        _ask(self, "setattr", name, value)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call it where it is."""
        return _ask(self, "call", *args, **kwargs)

    def __iter__(self) -> Any:
        found = _ask(self, "iter")
        return found if isinstance(found, Remote) else iter(found)

    def __next__(self) -> Any:
        return _ask(self, "next")

    def __hash__(self) -> int:
        return hash(_ask(self, "hash"))


def _ask(target: Remote, operation: str, *args: object, **kwargs: object) -> Any:
    peer: Peer = object.__getattribute__(target, "_peer")
    return peer.request(operation, object.__getattribute__(target, "_number"), *args, **kwargs)


def _asking(operation: str) -> Callable[..., Any]:
    def operate(self: Remote, *args: object) -> Any:
        return _ask(self, operation, *args)

    return operate


def _asking_with_theirs(operation: str, otherwise: Callable[[Remote, object], object]) -> Callable[..., Any]:
    def operate(self: Remote, other: object) -> Any:
        return _ask(self, operation, other) if isinstance(other, Remote) else otherwise(self, other)

    return operate


for _name in ("len", "bool", "str", "repr", "getitem", "setitem", "delitem", "enter", "neg"):
    setattr(Remote, f"__{_name}__", _asking(_name))
for _name in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(Remote, f"__{_name}__", _asking_with_theirs(_name, lambda _, __: NotImplemented))
setattr(Remote, "__eq__", _asking_with_theirs("eq", lambda self, other: self is other))  # noqa: B010
setattr(Remote, "__ne__", _asking_with_theirs("ne", lambda self, other: self is not other))  # noqa: B010
Remote.__exit__ = lambda self, *_: _ask(self, "exit")  # type: ignore[attr-defined]
