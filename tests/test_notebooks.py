"""Every notebook runs afresh against a small results folder, and says what the data says."""

import asyncio
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.frontier import frontier
from ddtree_tune.core.headline import headline
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.search import Study
from ddtree_tune.node.store import Store
from tests.builders import DIALECT, FINGERPRINT, SPEC, record, spec, surface

nbformat = pytest.importorskip("nbformat", reason="needs the notebooks extra")
nbclient = pytest.importorskip("nbclient", reason="needs the notebooks extra")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A whole sweep over a made-up surface, as a results folder."""
    root = tmp_path_factory.mktemp("results") / "small"
    text = SPEC.replace("trials: 8", "trials: 14")
    sweep, store, rng = spec(text), Store(str(root)), np.random.default_rng(0)
    store.write_spec(text)
    store.write_fingerprint(FINGERPRINT)
    study = Study(sweep, DIALECT)
    while (asked := study.ask()) is not None:

        def tps(context, concurrency, config=asked.config):
            return surface(config) * concurrency**0.8 * math.exp(0.01 * rng.standard_normal())

        found = record(sweep, asked, tps)
        cells = tuple(CellResult(replace(one.metrics, accept_len=3.0), ()) for one in found.cells)
        study.tell(replace(found, cells=cells))
        store.write(replace(found, cells=cells))
    return root


def execute(path, results):
    """Run a notebook with its results path replaced; returns it with outputs."""
    notebook = nbformat.read(path, as_version=4)
    first = next(one for one in notebook.cells if one.cell_type == "code")
    question, _, assignment = first.source.rpartition("\n")
    assert question.startswith("# "), "the first cell opens with the question"
    assert assignment.startswith("RESULTS = ")
    first.source = f"{question}\nRESULTS = {str(results)!r}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the kernel's client, not ours
        loop = asyncio.new_event_loop()
        try:
            client = nbclient.NotebookClient(
                notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
            )
            loop.run_until_complete(client.async_execute())
        finally:
            loop.close()
    return notebook


def output(cell, kind):
    """Every output of one kind of a cell."""
    return [one["data"][kind] for one in cell.outputs if kind in one.get("data", {})]


def printed(cell):
    return "".join(one["text"] for one in cell.outputs if one.output_type == "stream" and one["name"] == "stdout")


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_ends_with_the_conclusion(path, results):
    notebook = execute(path, results)
    store = Store(str(results))
    records = store.read_records()
    assert len(records) == 14 + 8
    expected = headline(conclude(records, SweepSpec.parse(store.read_spec(), "test")))
    assert printed(notebook.cells[-1]).strip() == expected
    assert expected.startswith("Run budget 16, topk 4, window 64: it is 1.")
    by_id = {cell["id"]: cell for cell in notebook.cells}
    assert output(by_id["plot"], "image/png")
    assert "0123abc" in output(by_id["provenance"], "text/plain")[0]
    shown = output(by_id["points"], "text/html")[0].count("<tr>")
    assert shown == sum(point.on_frontier for point in frontier(records)) > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_defines_no_function_and_keeps_short_cells(path):
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len(sources) > 3
    assert not any("def " in source or "lambda" in source for source in sources)
