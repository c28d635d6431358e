"""The documentation says what the code does; ``python -m tests.test_docs`` writes the generated pages."""

import re
import sys
import types
import typing
from enum import Enum
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ddtree_tune.core.spec import SweepSpec

ROOT = Path(__file__).parents[1]
SPEC_PAGE = ROOT / "docs/spec.md"
HEAD = """# The YAML of a sweep

Every field, its default and what it means. Unknown keys are errors. Generated from `ddtree_tune/core/spec.py` by
`python -m tests.test_docs`.

| Field | Default | Meaning |
|---|---|---|
"""


def sections(annotation):
    """Models within an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in {typing.Union, types.UnionType, tuple, typing.Annotated}:
        return [model for argument in typing.get_args(annotation) for model in sections(argument)]
    return []


def rows(model, path=""):
    for name, field in model.model_fields.items():
        where = f"{path}.{name}" if path else name
        below = sections(field.annotation)
        default = field.get_default(call_default_factory=True)
        if default is PydanticUndefined:
            shown = "required"
        elif isinstance(default, BaseModel):
            shown = ""
        else:
            default = default.value if isinstance(default, Enum) else default
            shown = f"`{default!r}`" if default not in ((), {}, "", None) else "none"
        meaning = " ".join((field.description or "").split())
        yield f"| `{where}` | {shown} | {meaning} |"
        for one in below:
            yield from rows(one, f"{where}[]" if typing.get_origin(field.annotation) is tuple else where)


def spec_page():
    return HEAD + "\n".join(rows(SweepSpec)) + "\n"


def test_the_page_of_the_spec_is_the_code():
    assert spec_page().count("\n| `") > 40
    assert SPEC_PAGE.read_text() == spec_page(), "run python -m tests.test_docs"


def test_every_field_of_the_spec_says_what_it_means():
    bare = [row for row in rows(SweepSpec) if row.endswith("|  |")]
    assert not bare


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*/*.md")]), ids=str
)
def test_links_of_a_page_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), f"{page}: {target}"
    assert len(text) > 100


if __name__ == "__main__":
    SPEC_PAGE.write_text(spec_page())
    sys.exit(0)
