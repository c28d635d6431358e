"""Every notebook runs afresh and says what the package says of the same folder.

``python -m tests.test_notebooks`` runs them and keeps their outputs.
"""

import asyncio
import base64
import math
import re
import sys
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ddtree_tune
from ddtree_tune.core.frontier import frontier
from ddtree_tune.core.headline import headline
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.steps import step_points
from ddtree_tune.node.search import Study
from ddtree_tune.node.store import Store
from tests.builders import DIALECT, FINGERPRINT, SPEC, record, spec, surface

nbformat = pytest.importorskip("nbformat", reason="needs the notebooks extra")
nbclient = pytest.importorskip("nbclient", reason="needs the notebooks extra")
FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


class Kernel:
    """One kernel that runs notebook after notebook, each with nothing of the one before but imports."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._client = nbclient.NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3")
        self._quietly(self._start())

    def run(self, path, results=None):
        """Run a notebook, perhaps on another folder than its own; returns it with outputs."""
        notebook = nbformat.read(path, as_version=4)
        first = next(one for one in notebook.cells if one.cell_type == "code")
        question, _, assignment = first.source.rpartition("\n")
        assert question.startswith("# "), "the first cell opens with the question"
        assert assignment.startswith("RESULTS = ")
        kept = first.source
        if results is not None:
            first.source = f"{question}\nRESULTS = {str(results)!r}"
        self._quietly(self._execute(notebook))
        first.source = kept
        return notebook

    def close(self):
        self._quietly(self._client._async_cleanup_kernel())
        self._loop.close()

    def _quietly(self, doing):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the kernel's client, not ours
            return self._loop.run_until_complete(doing)

    async def _start(self):
        self._client.create_kernel_manager()
        await self._client.async_start_new_kernel(cwd=str(FOLDER))
        await self._client.async_start_new_kernel_client()

    async def _execute(self, notebook):
        self._client.nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%reset -f")])
        self._client.reset_execution_trackers()
        await self._client.async_execute_cell(self._client.nb.cells[0], 0, store_history=False)
        self._client.nb = notebook
        code = [at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
        for number, at in enumerate(code, 1):
            await self._client.async_execute_cell(notebook.cells[at], at, execution_count=number)


@pytest.fixture(scope="module")
def kernel():
    one = Kernel()
    yield one
    one.close()


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
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


def output(cell, kind):
    """Every output of one kind of a cell."""
    return [one["data"][kind] for one in cell.outputs if kind in one.get("data", {})]


def rows(cell):
    """Rows of the data frame that a cell shows, the head aside."""
    (table,) = output(cell, "text/html")
    return table.count("<tr") - table.partition("</thead>")[0].count("<tr")


def printed(cell):
    return "".join(one["text"] for one in cell.outputs if one.output_type == "stream" and one["name"] == "stdout")


def cells_of(notebook):
    return {cell["id"]: cell for cell in notebook.cells}


def folder_of(path):
    """The results folder that a notebook names."""
    first = next(one for one in nbformat.read(path, as_version=4).cells if one.cell_type == "code")
    return ddtree_tune.load(FOLDER / re.search(r'RESULTS = "(.*)"', first.source)[1])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_ends_with_the_conclusion(path, kernel):
    ran, results = kernel.run(path), folder_of(path)
    assert printed(ran.cells[-1]).strip() == headline(results.conclusion())
    shown = [cell for cell in ran.cells if cell.cell_type == "code" and cell.outputs]
    assert not [one for cell in shown for one in cell.outputs if one.get("name") == "stderr"]
    kept = nbformat.read(path, as_version=4)
    assert [len(cell.outputs) for cell in kept.cells if cell.cell_type == "code"] == [
        len(cell.outputs) for cell in ran.cells if cell.cell_type == "code"
    ], "run python -m tests.test_notebooks"
    assert printed(kept.cells[-1]) == printed(ran.cells[-1]), "run python -m tests.test_notebooks"
    SEEN[path.stem](cells_of(ran), results)


def _frontier(cells, results):
    assert output(cells["plot"], "image/png")
    assert rows(cells["points"]) == sum(point.on_frontier for point in frontier(results.records)) > 0


def _matrix(cells, results):
    found = results.conclusion()
    assert rows(cells["cells"]) == len(found.cells) > 0
    assert rows(cells["schedule"]) == len(found.bands) > 0
    assert output(cells["plot"], "image/png")
    assert results.spec.price is not None or "names no price" in output(cells["costs"], "text/plain")[0]


def _acceptance(cells, results):
    assert step_points(results.records)
    assert all(output(cells[name], "image/png") for name in ("accepted", "stepped", "plot"))
    assert rows(cells["replayed"]) == 11
    assert rows(cells["foretold"]) > 0


def _search(cells, results):
    assert rows(cells["trials"]) == len(results.records)
    assert rows(cells["uses"]) >= 3
    assert rows(cells["settings"]) == len(results.conclusion().settings)
    assert output(cells["plot"], "image/png")
    assert output(cells["by_knob"], "image/png")


def _coding(cells, results):
    assert rows(cells["rates"]) == len(results.conclusion().coding) > 1
    failed = {one.problem_id for record in results.records for one in record.attempts if one.outcome != "pass"}
    assert rows(cells["attempts"]) == len(failed) > 0
    assert output(cells["plot"], "image/png")


def _tune(cells, results):
    assert output(cells["restored"], "text/plain") == [f"[({len(results.records)}, {len(results.records)}, 0)]"]
    assert rows(cells["grid"]) == len(results.records)
    assert rows(cells["best"]) > len(results.spec.load.cells())


SEEN = dict(
    zip((path.stem for path in NOTEBOOKS), (_frontier, _matrix, _acceptance, _search, _coding, _tune), strict=True)
)
"""What each notebook shows, by its name."""


def test_a_notebook_runs_on_any_results_folder(kernel, made_up):
    path = FOLDER / "101_frontier.ipynb"
    notebook, results = kernel.run(path, made_up), ddtree_tune.load(made_up)
    expected = headline(results.conclusion())
    assert printed(notebook.cells[-1]).strip() == expected
    assert expected.startswith("Run budget 16, topk 4, window 64: it is 1.")
    assert len(results.records) == 14 + 8
    assert "0123abc" in output(cells_of(notebook)["provenance"], "text/plain")[0]
    _frontier(cells_of(notebook), results)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_defines_no_function_and_keeps_short_cells(path):
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len(sources) > 3
    assert not any("def " in source or "lambda" in source for source in sources)
    assert max(source.count("\n") for source in sources) < 25


def packed(picture):
    """The same picture, to the pixel, in a quarter of the room: PNG's data deflated as well as can be."""
    data = base64.b64decode(picture)
    chunks, at = [], 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    whole = [one for one in chunks if one[0] != b"IDAT"]
    whole.insert(-1, (b"IDAT", zlib.compress(pixels, 9)))
    parts = (len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4) for kind, body in whole)
    return base64.b64encode(data[:8] + b"".join(parts)).decode()


def keep(path, kernel):
    """Run a notebook and keep its outputs."""
    notebook = kernel.run(path)
    for one in (one for cell in notebook.cells for one in cell.get("outputs", [])):
        if "image/png" in one.get("data", {}):
            one["data"]["image/png"] = packed(one["data"]["image/png"])
    for cell in notebook.cells:
        cell["metadata"].pop("execution", None)  # when it ran is no result
    nbformat.write(notebook, path)


if __name__ == "__main__":
    running = Kernel()
    for each in NOTEBOOKS:
        keep(each, running)
    running.close()
    sys.exit(0)
