"""The results folder: whole files only, any file system, and what is read is what was written."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddtree_tune.core.errors import StoreError
from ddtree_tune.core.record import CellResult, Origin, TrialStatus
from ddtree_tune.core.schema import TABLES, VERSION_KEY
from ddtree_tune.node.store import Store
from tests.builders import FINGERPRINT, NONE, cell, proposal, record, run, spec, tree

SWEEP = spec()


def trial(n=1, config=NONE, **changes):
    cells = (CellResult(cell(60, 1, 80.0 + n), (run(60, 1),)), CellResult(cell(60, 8, 200.0), (run(60, 8),)))
    return record(SWEEP, proposal(n, config, Origin.BASELINE), cells=cells, **changes)


def without_log(one):
    return replace(one, log="")


def without_runs(one):
    return replace(one, log="", cells=tuple(replace(found, runs=()) for found in one.cells))


@pytest.fixture
def store(tmp_path):
    one = Store(str(tmp_path / "results" / "small"))
    one.write_fingerprint(FINGERPRINT)
    return one


def test_the_folder_is_laid_out_as_promised(store):
    store.write_spec("name: small\n")
    store.write(trial())
    name = trial().trial_id
    files = sorted(str(path.relative_to(store.root)) for path in Path(store.root).rglob("*") if path.is_file())
    assert files == sorted(
        ["sweep.yaml", "fingerprint.json", f"logs/{name}/server.log", *(f"{table}/{name}.parquet" for table in TABLES)]
    )
    assert json.loads(store.read_text("fingerprint.json"))["hostname"] == "node-a"
    assert store.read_spec() == "name: small\n"
    assert store.read_text(f"logs/{name}/server.log") == "ready\n"


def test_records_come_back_in_the_order_of_asking(store):
    written = [trial(n, config) for n, config in ((3, tree(8)), (1, NONE), (2, tree(4)))]
    for one in written:
        store.write(one)
    in_order = sorted(written, key=lambda one: one.trial_id)
    assert store.read_records(raw=True) == tuple(map(without_log, in_order))
    assert store.read_records() == tuple(map(without_runs, in_order))


def test_an_empty_folder_has_no_records_and_empty_tables(tmp_path):
    store = Store(str(tmp_path / "nothing"))
    assert store.read_records() == ()
    assert store.read_table("cells").num_rows == 0
    assert "output_tps" in store.read_table("cells").column_names


def test_a_later_write_replaces_the_trial(store):
    store.write(replace(trial(), cells=(), status=TrialStatus.FAILED))
    store.write(trial())
    assert store.read_records(raw=True) == (without_log(trial()),)


def test_half_written_files_never_count(store):
    store.write(trial())
    folder = Path(store.root) / "trials"
    (folder / ".0002-abc.parquet.part").write_bytes(b"PAR1 half of a fi")
    (folder / "notes.txt").write_text("not a table")
    assert len(store.read_records()) == 1


def test_a_trial_without_its_row_does_not_count(store):
    """What is on disk when a writer is killed after three of four files."""
    store.write(trial(1))
    store.write(trial(2, tree(8)))
    (Path(store.root) / "trials" / f"{trial(2, tree(8)).trial_id}.parquet").unlink()
    assert [one.trial_id for one in store.read_records()] == [trial(1).trial_id]
    for table in TABLES:
        assert set(store.read_table(table)["trial_id"].to_pylist()) == {trial(1).trial_id}


def test_the_row_that_makes_a_trial_count_is_written_last(store, monkeypatch):
    written = []
    real = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda table, *args, **kw: (written.append(table), real(table, *args, **kw)))
    store.write(trial())
    assert [table.schema.metadata[b"table"].decode() for table in written][-1] == "trials"
    assert len(written) == 4


def test_one_trial_is_read_whole_and_one_that_left_no_row_is_none(store):
    store.write(trial(1))
    store.write(trial(2, tree(8)))
    assert store.read_record(trial(2, tree(8)).trial_id) == without_log(trial(2, tree(8)))
    assert store.read_record("0003-abc") is None


def test_a_folder_that_vanished_is_not_made_anew(store, tmp_path):
    store.write(trial(1))
    (tmp_path / "results").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match=r"small must still hold .* but got none: it was moved, deleted or unmounted"):
        store.write(trial(2))
    assert not (tmp_path / "results").exists()
    (tmp_path / "moved").rename(tmp_path / "results")
    store.write(trial(2))
    assert len(store.read_records(raw=True)) == 2


FILLED = """
import resource
import sys

from ddtree_tune.core.errors import StoreError
from ddtree_tune.node.store import Store
from tests.node.test_store import trial

store = Store(sys.argv[1])
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
try:
    store.write(trial(1))
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.write(trial(2))
"""


@pytest.mark.parametrize("size", [0, 2000])
def test_a_disk_that_takes_no_more_leaves_no_half_file_and_what_was_there(store, size):
    """The limit of a process stands for a full disk: ``write`` fails in the middle of a file either way."""
    earlier = replace(trial(1), cells=(), status=TrialStatus.FAILED)
    store.write(earlier)
    done = subprocess.run(
        [sys.executable, "-c", FILLED, store.root, str(size)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"cannot write {store.root}/")
    assert "File too large" in done.stdout
    files = [path for path in Path(store.root).rglob("*") if path.is_file()]
    assert not [path for path in files if path.name.startswith(".")]
    assert all(pq.read_table(path).num_rows >= 0 for path in files if path.suffix == ".parquet")
    assert store.read_records(raw=True)[1] == without_log(trial(2))
    assert store.read_records()[0].status is TrialStatus.FAILED


def test_a_file_is_synced_before_it_has_its_name_and_its_folder_after(store, monkeypatch):
    seen = []
    real = os.fsync

    def fsync(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((path.name, sorted(one.name for one in (path if path.is_dir() else path.parent).iterdir())))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.write(replace(trial(), log=""))
    name = f"{trial().trial_id}.parquet"
    synced = [(f".{name}.part", [f".{name}.part"]), ("trials", [name])]
    assert seen[-2:] == synced
    assert len(seen) == 2 * len(TABLES)


def test_a_damaged_file_is_named_with_what_to_do(store):
    store.write(trial())
    path = Path(store.root) / "trials" / f"{trial().trial_id}.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match=rf"{trial().trial_id}.parquet; delete the file and the trial runs again"):
        store.read_records()


def test_another_schema_version_is_refused(store):
    store.write(trial())
    path = Path(store.root) / "cells" / f"{trial().trial_id}.parquet"
    old = pq.read_table(path)
    pq.write_table(old.replace_schema_metadata({**old.schema.metadata, VERSION_KEY: b"0"}), path)
    with pytest.raises(StoreError, match="must have schema version 1, but got 0"):
        store.read_records()


def test_a_path_through_a_file_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Store(str(tmp_path / "file" / "x")).write_spec("name: small\n")


def test_an_unknown_file_system_is_a_store_error():
    with pytest.raises(StoreError, match="cannot open nowhere://x"):
        Store("nowhere://x")


def test_a_missing_spec_is_a_store_error(store):
    with pytest.raises(StoreError, match=r"cannot read .*sweep\.yaml"):
        store.read_spec()


def test_any_fsspec_file_system_will_do():
    store = Store("fsspec+memory:///sweeps/small")
    store.write_spec("name: small\n")
    store.write_fingerprint(FINGERPRINT)
    store.write(trial())
    store.write(trial())
    assert store.read_spec() == "name: small\n"
    assert store.read_records(raw=True) == (without_log(trial()),)


def test_columns_carry_units_after_the_file_was_read_back(store):
    store.write(trial())
    field = store.read_table("cells").schema.field("output_tps")
    assert field.metadata[b"unit"] == b"tok/s"
    assert field.type == pa.float64()
