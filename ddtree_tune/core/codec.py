"""Dataclasses to Arrow and back, by their annotations.

A dataclass is a struct, a tuple a list, a (name, value) pair a struct of two, an enum its word. A
scalar of any type is JSON text, for a column has one type. What is None is null, and comes back so.
"""

from __future__ import annotations

import functools
import json
import types
import typing
from dataclasses import is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddtree_tune.core import (
    coding,
    degenerate,
    engine,
    errors,
    flags,
    gate,
    gpu,
    metrics,
    record,
    rungs,
    stats,
    trace,
    workload,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = {
    name: value
    for module in (coding, degenerate, engine, errors, flags, gate, gpu, metrics, record, rungs, stats, trace, workload)
    for name, value in vars(module).items()
}
"""What annotations refer to: core modules import each other's types for checking only."""
_PLAIN = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


@functools.cache
def hints(kind: type) -> dict[str, Any]:
    """The fields of a dataclass or named tuple with their types."""
    names = kind.__dataclass_fields__ if is_dataclass(kind) else kind.__annotations__
    known = typing.get_type_hints(kind, localns=_NAMES)
    return {name: known[name] for name in names}


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type of an annotation."""
    kind = _optional(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if _is_scalar(kind) or _is_word(kind):
        return pa.string()
    if (items := _items(kind)) is not None:
        return pa.list_(arrow_type(items))
    return struct_type(_parts(kind))


def struct_type(fields: Mapping[str, Any]) -> pa.DataType:
    """The Arrow struct of named types."""
    return pa.struct([pa.field(name, arrow_type(of)) for name, of in fields.items()])


def encode_fields(value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Some attributes of a value, encoded."""
    return {name: encode(getattr(value, name), of) for name, of in fields.items()}


def decode_fields(row: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Some entries of a row, decoded."""
    return {name: decode(row[name], of) for name, of in fields.items()}


def encode(value: Any, kind: Any) -> Any:
    """A value as Arrow takes it: dicts, lists and plain values."""
    if _is_scalar(kind):
        return json.dumps(value)
    kind = _optional(kind)
    if kind is str and value is not None:
        return utf8(value)
    if value is None or kind in _PLAIN:
        return value
    if _is_word(kind):
        return str(value)
    if (items := _items(kind)) is not None:
        return list(value) if items in {int, float} else [encode(one, items) for one in value]
    parts = _parts(kind)
    values = value if isinstance(value, tuple) else [getattr(value, name) for name in parts]
    return {name: encode(one, of) for (name, of), one in zip(parts.items(), values, strict=True)}


def decode(value: Any, kind: Any) -> Any:
    """The inverse of ``encode``."""
    if _is_scalar(kind):
        return json.loads(value)
    if value is None and _items(kind) is not None:
        return ()  # of a file that is older than the column; a list that may be absent is optional
    kind = _optional(kind)
    if value is None or kind in _PLAIN:
        return value
    if _is_word(kind):
        return kind(value) if isinstance(kind, type) else value
    if (items := _items(kind)) is not None:
        return tuple(value) if items in _PLAIN else tuple(decode(one, items) for one in value)
    found = decode_fields(value, _parts(kind))
    return tuple(found.values()) if typing.get_origin(kind) is tuple else kind(**found)


def utf8(text: str) -> str:
    """Text that can be written: half a surrogate pair, which JSON lets a server send, becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _optional(kind: Any) -> Any:
    """The type beside None, or the type itself."""
    if _is_scalar(kind) or typing.get_origin(kind) not in {typing.Union, types.UnionType}:
        return kind
    (one,) = (part for part in typing.get_args(kind) if part is not type(None))
    return one


def _is_scalar(kind: Any) -> bool:
    return bool(kind == engine.Scalar)


def _is_word(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal or (isinstance(kind, type) and issubclass(kind, StrEnum))


def _items(kind: Any) -> Any | None:
    """What a tuple of any length holds; None for anything else."""
    arguments = typing.get_args(kind)
    return arguments[0] if typing.get_origin(kind) is tuple and arguments[-1] is Ellipsis else None


def _parts(kind: Any) -> dict[str, Any]:
    """Names and types of a struct: a dataclass's fields, or the two halves of a pair."""
    if typing.get_origin(kind) is tuple:
        return dict(zip(("name", "value"), typing.get_args(kind), strict=True))
    return hints(kind)
