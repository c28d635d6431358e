"""The four tables: nothing of a record is lost on the way to Arrow and back."""

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core import codec
from ddtree_tune.core.coding import Chunks
from ddtree_tune.core.columns import MEANINGS, unit
from ddtree_tune.core.degenerate import Degeneration
from ddtree_tune.core.engine import Algorithm, Difference, EngineConfig
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.gpu import GpuUse, Throttle
from ddtree_tune.core.record import CellResult, CellTexts, Origin, TrialStatus
from ddtree_tune.core.schema import SCHEMA_VERSION, TABLES, VERSION_KEY, records, schema, tables
from ddtree_tune.core.trace import NetworkRoute
from ddtree_tune.core.workload import Cell, OpenLoop
from tests.builders import NONE, cell, proposal, record, run, spec, tree


def round_trip(*found):
    """To Arrow, through Parquet bytes, and back."""
    merged = {}
    for name in TABLES:
        file = io.BytesIO()
        pq.write_table(pa.concat_tables([tables(one)[name] for one in found]), file)
        merged[name] = pq.read_table(io.BytesIO(file.getvalue()))
    return records(merged)


def full():
    """A record with something in every field."""
    sweep = spec()
    one = record(sweep, replace(proposal(7, tree(8, 4, 64), Origin.SEED), reference="def clamp(): ..."))
    use = GpuUse(2, 150, 21e3, "counter", 700.5, 131.25, 1612.5, 1200, 71, 0.0, 0.25, (Throttle.POWER_CAP,))
    route = NetworkRoute("load-1", "10.0.0.9", "gpu-1", "10.0.0.5", -1_200_000, 90_000)
    cells = tuple(
        CellResult(
            replace(cell(c, u, 80.0), joules_per_token=0.4, temperature_c=71),
            (replace(run(c, u), gpu=use, route=route), replace(run(c, u, 1), gpu_missing="no driver")),
        )
        for c, u in ((60, 1), (60, 8), (512, 1))
    )
    flag = Difference("flag", asked=True, effective=None)
    differences = (Difference("budget", 8, 15), flag, Difference("x", "1", 1.5))
    streamed = replace(one.attempts[0], concurrency=8, temperature=0.0, chunks=Chunks((3, 9), (1, 4)))
    attempts = (streamed, replace(one.attempts[1], degenerate=Degeneration.LOOP), *one.attempts[2:])
    texts = (CellTexts("chat_i60_o128_c1", ("a", "b"), ("b",)), CellTexts("chat_i60_o128_c8", (), ()))
    return replace(one, cells=cells, differences=differences, attempts=attempts, texts=texts, log="")


def test_a_full_record_comes_back_equal():
    before = full()
    (after,) = round_trip(before)
    assert after == before
    assert len(after.cells[0].runs[0].traces) == 4
    assert after.cells[0].runs[0].traces[3].chunk_tokens is None
    assert [type(one.effective) for one in after.differences] == [int, type(None), float]


def test_failed_and_half_written_records_come_back_equal():
    sweep = spec()
    failed = record(sweep, proposal(1, NONE, Origin.BASELINE), failure=FailureClass.STARTUP_OOM, log="")
    half = record(sweep, proposal(2, tree(8)), status=TrialStatus.FAILED, cells=(), attempts=(), pass_rate=None, log="")
    bare = replace(half, plan=None, effective=None, gate=None, answer=None, fingerprint=None, spans=())
    assert round_trip(failed, half, bare) == (failed, half, bare)


def test_without_requests_the_metrics_still_come_back():
    before = full()
    found = tables(before)
    found.pop("requests")
    (after,) = records(found)
    assert [one.metrics for one in after.cells] == [one.metrics for one in before.cells]
    assert all(one.runs == () for one in after.cells)


def test_an_open_loop_keeps_its_rate():
    load = run()
    load = replace(load, cell=Cell(60, 128, OpenLoop(2.5), 30.0, min_requests=3))
    before = replace(full(), cells=(CellResult(replace(cell(60, 1, 80.0), cell_id=load.cell.cell_id), (load,)),))
    assert round_trip(before) == (before,)


scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text()


@settings(deadline=None, max_examples=25)
@given(
    flags=st.dictionaries(st.text(min_size=1), scalars, max_size=4),
    tps=st.none() | st.floats(0.001, 1e9),
    text=st.text(st.characters(exclude_categories=["Cs"])),
    chunks=st.lists(st.integers(0, 2**62), max_size=5),
    window=st.none() | st.integers(1, 2**31),
)
def test_any_values_come_back(flags, tps, text, chunks, window):
    config = EngineConfig(Algorithm.TREE, 8, 4, window, tuple(sorted(flags.items())))
    before = full()
    load = before.cells[0].runs[0]
    traces = (replace(load.traces[1], text=text, chunk_ns=tuple(chunks), chunk_tokens=tuple(chunks)),)
    before = replace(
        before,
        proposal=proposal(1, config),
        cells=(CellResult(cell(60, 1, tps), (replace(load, traces=traces, window=None),)),),
        answer=text,
    )
    (after,) = round_trip(before)
    assert after == before
    assert after.config.config_id == config.config_id


def test_half_a_surrogate_pair_from_a_server_does_not_stop_the_record():
    (after,) = round_trip(replace(full(), answer="a\ud800b"))
    assert after.answer == "a?b"


def test_every_column_has_a_meaning_and_the_version():
    for name in TABLES:
        found = schema(name)
        assert list(found.names) == list(dict.fromkeys(found.names))
        assert set(found.names) == set(MEANINGS[name]), name
        assert all(column.metadata[b"meaning"] for column in found)
        assert found.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
        assert list(found.names)[:4] == ["sweep", "trial_id", "config_id", "schema_version"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [("ttft_s", "s"), ("chunk_ns", "ns, perf_counter of the client"), ("output_tps", "tok/s"), ("budget", "nodes")],
)
def test_units_are_in_the_metadata(column, expected):
    assert unit(column) == expected
    held = [found.field(column) for found in map(schema, TABLES) if column in found.names]
    assert held
    assert all(one.metadata[b"unit"].decode() == expected for one in held)


def test_equal_outputs_have_equal_hashes():
    rows = tables(full())["requests"].to_pylist()
    shas = {row["output_sha"] for row in rows}
    assert len(rows) == 24
    assert len(shas) == 1
    assert len(shas.pop()) == 16


def test_a_list_of_a_file_that_is_older_than_its_column_is_empty():
    assert codec.decode(None, tuple[int, ...]) == ()
    assert codec.decode(None, tuple[int, ...] | None) is None


def test_an_annotation_without_an_arrow_type_is_refused():
    with pytest.raises((TypeError, ValueError, AttributeError)):
        codec.arrow_type(int | str)
