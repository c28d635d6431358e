"""The documentation says what the code does; ``python -m tests.test_docs`` writes the generated pages."""

import ast
import itertools
import re
import sys
import types
import typing
from enum import Enum
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ddtree_tune.core.errors import FailureClass, blame
from ddtree_tune.core.schema import TABLES, schema
from ddtree_tune.core.spec import SweepSpec

ROOT = Path(__file__).parents[1]
SPEC_PAGE = ROOT / "docs/spec.md"
HEAD = """# The YAML of a sweep

Every field, its default and what it means. Unknown keys are errors. Generated from `ddtree_tune/core/spec.py` by
`python -m tests.test_docs`.

| Field | Default | Meaning |
|---|---|---|
"""


FAILURES_PAGE = ROOT / "docs/failures.md"
FAILURES_HEAD = """# Why a trial failed

Every trial that does not complete is a row with one of these classes, the stage, one sentence, and the server's last
200 lines (`failure` in `trials/`, the whole log in `logs/`). Whose fault it is decides what happens: the
**configuration**'s is told to the search as infeasible; **nobody**'s may have been chance, so it is tried once more
before it is believed; the **node**'s is tried again elsewhere and teaches nothing; **ours** is tried again. Generated
by `python -m tests.test_docs`.

| Class | What happened | Whose fault | What to do |
|---|---|---|---|
"""
ADVICE = {
    FailureClass.INVALID_CONFIG: "Read the flag in the reason; the dialect or `engine.args` does not fit this build.",
    FailureClass.STARTUP_CRASH: "Read the log; `engine.command` and `engine.args` by hand on the node show the same.",
    FailureClass.STARTUP_OOM: "Lower `--mem-fraction-static` or the context length in `engine.args`.",
    FailureClass.CAPTURE_CRASH: "Nothing for one setting; if all fail, another attention backend.",
    FailureClass.STARTUP_TIMEOUT: "Raise `engine.start_deadline_s` or give `engine.model_gib`; see where the log is.",
    FailureClass.PORT_CONFLICT: "See who listens there with `ss -ltnp`. "
    "A server that `docker run` starts is the daemon's: run the trials in the container.",
    FailureClass.IDENTITY: "See which server answers; a proxy between the node and its own loopback is a candidate.",
    FailureClass.NO_GENERATION: "Raise `gate.deadline_s`, or fit `gate.question` and `gate.expect` to the model.",
    FailureClass.SILENT_OVERRIDE: "Drop the flag, or name what may differ in `gate.allow`.",
    FailureClass.SPEC_INERT: "Check that the drafter belongs to this target, and to this quantisation.",
    FailureClass.LOSSY: "Compare the two answers in `trials/`; `gate.lossless: record` measures it all the same.",
    FailureClass.DEGENERATE_OUTPUT: "Kernels or quantisation break under this setting; its acceptance means nothing.",
    FailureClass.CRASH_REQUEST: "Read the log's traceback; the cells before it are kept.",
    FailureClass.OOM_RUNTIME: "Lower `--mem-fraction-static`, or the largest concurrency or context.",
    FailureClass.HANG: "Raise `engine.stall_s` if kernels are compiled at the first large batch.",
    FailureClass.DIRTY_NODE: "End what the reason names on the node; it is used again as soon as it is clean.",
    FailureClass.NODE_LOST: "Look at the machine; the trial is run again.",
    FailureClass.LOAD: "Read the reason; prompts that cannot be cut to a context are the usual cause.",
    FailureClass.GRADE: "Read the reason; [sandbox.md](sandbox.md) says what each level needs.",
    FailureClass.INTERRUPTED: "`ddtree-tune resume` runs it again.",
    FailureClass.INTERNAL: "A defect of this package: please report it with the traceback in the log tail.",
}
"""What a user can do, by class."""


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


def failures_page():
    tree = ast.parse((ROOT / "ddtree_tune/core/errors.py").read_text())
    (members,) = [one.body for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "FailureClass"]
    said = {}
    for name, text in itertools.pairwise(members[1:]):
        if isinstance(name, ast.Assign) and isinstance(text, ast.Expr):
            said[FailureClass[name.targets[0].id]] = text.value.value
    assert set(said) == set(FailureClass)
    lines = [f"| `{one.value}` | {text} | {blame(one).value} | {ADVICE[one]} |" for one, text in said.items()]
    return FAILURES_HEAD + "\n".join(lines) + "\n"


def test_the_page_of_failures_is_the_code():
    assert FAILURES_PAGE.read_text() == failures_page(), "run python -m tests.test_docs"


COLUMNS_PAGE = ROOT / "docs/columns.md"
COLUMNS_HEAD = """# The columns of a results folder

A results folder holds four tables, one Parquet file per trial in each, with unit and meaning in the metadata of every
column. [report.md](report.md) says how to open them. Generated from `ddtree_tune/core/schema.py` and `core/columns.py`
by `python -m tests.test_docs`. A column without a unit is text, a count, a share or a structure.
"""
GRAINS = {
    "trials": "A row per trial: what was asked, what the server resolved, what became of it.",
    "cells": "A row per trial and cell of its load matrix: the measured numbers.",
    "requests": "A row per request, with the arrival of every chunk: any number can be computed again from these.",
    "attempts": "A row per coding problem asked.",
}


def arrow_words(of):
    """An Arrow type in a few words."""
    if pa.types.is_list(of):
        return f"list of {arrow_words(of.value_type)}"
    if pa.types.is_struct(of):
        return f"struct: {', '.join(field.name for field in of)}"
    return {"double": "float64", "string": "text"}.get(str(of), str(of))


def columns_page():
    parts = [COLUMNS_HEAD]
    for table in TABLES:
        parts.append(f"\n## {table}\n\n{GRAINS[table]}\n\n| Column | Type | Unit | Meaning |\n|---|---|---|---|\n")
        for field in schema(table):
            told = {key.decode(): value.decode() for key, value in field.metadata.items()}
            parts.append(f"| `{field.name}` | {arrow_words(field.type)} | {told['unit']} | {told['meaning']} |\n")
    return "".join(parts)


def test_the_page_of_columns_is_the_schema():
    page = columns_page()
    assert all(f"| `{field.name}` |" in page for table in TABLES for field in schema(table))
    assert not [line for line in page.splitlines() if line.endswith("|  |")], "every column says what it means"
    assert COLUMNS_PAGE.read_text() == page, "run python -m tests.test_docs"


def test_every_field_of_the_spec_says_what_it_means():
    bare = [row for row in rows(SweepSpec) if row.endswith("|  |")]
    assert not bare


def test_the_python_of_the_report_page_runs(capsys):
    snippet, tunes = re.findall(r"```python\n(.*?)```", (ROOT / "docs/report.md").read_text(), re.DOTALL)
    golden = str(ROOT / "tests/golden/results")
    assert snippet.count('"results/laptop-20261130-101500"') == 1
    known: dict = {}
    exec(snippet.replace("results/laptop-20261130-101500", golden), known)
    assert capsys.readouterr().out.split()[0] == known["conclusion"].answer
    assert len(known["frame"]) == known["results"].cells.num_rows > 100
    assert tunes.count('"results/laptop-20261130-101500/tune"') == 1
    exec(tunes.replace("results/laptop-20261130-101500", str(ROOT / "tests/golden/short")), known)
    assert len(known["grid"]) == len(list((ROOT / "tests/golden/short/trials").iterdir()))


if __name__ == "__main__":
    SPEC_PAGE.write_text(spec_page())
    FAILURES_PAGE.write_text(failures_page())
    COLUMNS_PAGE.write_text(columns_page())
    sys.exit(0)
