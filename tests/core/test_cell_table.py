"""Cells as a table and as JSON: nothing is lost, nothing is invented."""

import json
from dataclasses import replace

from ddtree_tune.core.cell_table import cell_fields, cell_lines, unmeasured_fields
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import RequestError
from tests.core.test_metrics import CELL, filling, run, trace


def mixed():
    return measure([run(filling(prompt_family="code/x/bare"), filling(prompt_family="chat/y/bare", spec=None))])


def test_a_row_holds_the_cells_numbers_and_a_page():
    cell = measure([run(filling())])
    lines = cell_lines([cell])
    assert lines[0].split()[:2] == ["cell", "tok/s"]
    assert lines[1].split()[:3] == ["i1000", "c1", f"{cell.output_tps:.1f}"]
    assert all(len(line) <= 100 for line in lines)
    assert "4.00" in lines[1]


def test_flags_failures_and_absent_numbers_stand_below_with_their_cells():
    broken = measure([run(trace(error=RequestError.HTTP_503, chunks=0, chunk_tokens=None), window=None)])
    words = "\n".join(cell_lines([broken, measure([run(filling())])]))
    assert "i1000 c1: failures, short; not to be compared with others" in words
    assert "output_tps: the slots were never all busy: 1 requests failed" in words
    assert "i1000 c1: 1 http_503" in words


def test_families_are_told_apart_where_there_are_several():
    assert "by family" not in "\n".join(cell_lines([measure([run(filling())])]))
    words = "\n".join(cell_lines([mixed()]))
    assert "i1000 c1: chat -, code 4.00" in words


def test_json_has_the_same_keys_whether_a_cell_was_measured_or_not():
    measured, missing = cell_fields(mixed()), unmeasured_fields(CELL, "the server stopped answering")
    assert set(measured) == set(missing)
    for fields in (measured, missing):
        assert json.loads(json.dumps(fields)).keys() == fields.keys()
    assert measured["ttft_s"]["p50"] is not None
    assert measured["ttft_s"]["p99"] is None
    assert missing["output_tps"] is None
    assert missing["reasons"] == {"output_tps": "the server stopped answering"}
    assert missing["repeats"] == 0


def test_an_open_loop_is_named_by_its_rate():
    from ddtree_tune.core.workload import OpenLoop

    cell = measure([run(filling(), cell=replace(CELL, arrival=OpenLoop(2.5)))])
    assert cell_lines([cell])[1].split()[:2] == ["i1000", "r2.5"]
