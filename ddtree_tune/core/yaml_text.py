"""YAML text to one mapping, and what is wrong with it in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from ddtree_tune.core.errors import SpecError

if TYPE_CHECKING:
    from pydantic import ValidationError


def read_mapping(text: str, source: str) -> dict[str, Any]:
    """Read one mapping.

    Args:
        text: the YAML.
        source: where it came from, for error sentences.

    Raises:
        SpecError: it is no YAML, no mapping, or has a key twice.
    """
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader that also refuses repeated keys
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or "not YAML"
        raise SpecError(f"{where}: the spec must be one YAML mapping, but got: {problem}") from None
    if not isinstance(data, dict):
        raise SpecError(f"{source}: the spec must be one YAML mapping, but got {type(data).__name__}")
    return data


class _UniqueKeyLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key given twice: the second would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key that is not a word", problem_mark=key_node.start_mark)
            if key_node.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key_node.value!r} twice", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def sentence(error: ValidationError, source: str, whole: str = "the spec") -> str:
    """Say the first problem of a validation in one sentence.

    Args:
        error: what pydantic found.
        source: where the text came from.
        whole: what all of it is called.
    """
    found = error.errors()
    # Of a union, the branch that took the value's form says more than the one that refused it.
    closer = [one for one in found if one["type"] not in {"tuple_type", "model_type"}]
    first = max(closer or found, key=lambda one: len(one["loc"]))
    path = ""
    for part in first["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in {"Range", "tuple", "int", "str"}:
            path += f".{part}" if path else part
    message = first["msg"].removeprefix("Value error, ")
    value = first["input"]
    if first["type"] == "extra_forbidden":
        section = path.rpartition(".")[0] or whole
        return f"{source}: {section} must not have the unknown key {path.rpartition('.')[2]!r}, but got {value!r}"
    if first["type"] == "missing":
        return f"{source}: {path} must be given, but it is missing"
    where = f"{source}: {path}: " if path else f"{source}: "
    if first["type"] == "value_error":
        return f"{where}{message}"
    return f"{where}{message[0].lower()}{message[1:]}, but got {value!r}"
