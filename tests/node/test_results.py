"""``ddtree_tune.load``: the tables as they were kept, with units, and what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

import ddtree_tune
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.errors import SpecError, StoreError
from ddtree_tune.core.schema import TABLES, schema
from tests.builders import NONE, SPEC, proposal, record, spec
from tests.core.test_conclusion import SWEEP, search
from tests.node.test_report_file import folder
from tests.node.test_store import trial

GOLDEN = Path(__file__).parents[1] / "golden/results"


@pytest.fixture(scope="module")
def golden():
    return ddtree_tune.load(GOLDEN)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_comes_with_unit_and_meaning_of_every_column(golden, name):
    table = getattr(golden, name)
    assert table.schema.names == schema(name).names
    for field in table.schema:
        told = schema(name).field(field.name).metadata
        assert {key: field.metadata[key] for key in told} == told
        assert told[b"meaning"]


def test_the_tables_hold_the_sweep(golden):
    assert golden.trials.num_rows == len(golden.records) > 20
    assert golden.cells.num_rows == sum(len(one.cells) for one in golden.records) > 100
    assert golden.attempts.num_rows == sum(len(one.attempts) for one in golden.records) > 200
    assert golden.cells.schema.field("output_tps").metadata[b"unit"] == b"tok/s"
    frame = golden.cells.to_pandas()
    assert frame["output_tps"].notna().sum() > 100
    answer = golden.answer()
    assert answer["best"]["setting"] == golden.conclusion().best.config.label
    assert answer["results"] == str(GOLDEN)
    assert answer["partial"] is None


def test_requests_are_read_when_they_are_asked(tmp_path):
    root = folder(tmp_path / "small", [trial()])
    found = ddtree_tune.load(str(root))
    assert found.requests.num_rows == 8
    assert found.requests["chunk_ns"].to_pylist()[0] == [200, 700]


def test_a_running_sweep_is_loaded_again_to_see_more(tmp_path):
    records = search()
    root = folder(tmp_path / "small", records[:2])
    early = ddtree_tune.load(root)
    assert early.conclusion().best is None
    folder(root, records)
    assert early.trials.num_rows == 2
    late = ddtree_tune.load(root)
    assert late.trials.num_rows == len(records)
    assert late.conclusion() == conclude(late.records, SWEEP)
    assert late.conclusion().best_tree.config == records[2].config


def test_tables_without_a_spec_are_loaded_and_a_conclusion_needs_one(tmp_path):
    root = folder(tmp_path / "small", [record(spec(), proposal(1, NONE))])
    (root / "sweep.yaml").unlink()
    found = ddtree_tune.load(root)
    assert found.trials.num_rows == 1
    with pytest.raises(StoreError, match=r"sweep\.yaml"):
        found.conclusion()
    (root / "sweep.yaml").write_text(SPEC)
    assert ddtree_tune.load(root).conclusion().rows


def test_a_folder_that_holds_no_sweep_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"the results folder of a sweep, but got neither trials nor sweep\.yaml"):
        ddtree_tune.load(tmp_path / "nothing")


def test_the_package_alone_imports_nothing_heavy():
    code = "import sys, ddtree_tune; print(sorted(name for name in sys.modules if name.startswith('ddtree_tune')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ddtree_tune']"
