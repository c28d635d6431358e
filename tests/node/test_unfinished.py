"""What a killed sweep left open is closed with its reason, and nothing else is touched."""

from dataclasses import replace

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.node.store import Store
from ddtree_tune.node.unfinished import REASON, close_unfinished
from tests.builders import NONE, proposal, record, spec
from tests.fakes import FINGERPRINT


def test_a_trial_that_nobody_ended_says_why_and_keeps_what_it_measured(tmp_path):
    store = Store(str(tmp_path))
    store.write_fingerprint(FINGERPRINT)
    whole = record(spec(), proposal(1, NONE))
    broken = record(spec(), proposal(2, NONE), failure=FailureClass.LOAD)
    left = replace(record(spec(), proposal(3, NONE)), status=TrialStatus.FAILED)
    for one in (whole, broken, left):
        store.write(one)
    close_unfinished(store)
    found = store.read_records(raw=True)
    assert [one.failure and one.failure.failure for one in found] == [None, FailureClass.LOAD, FailureClass.INTERRUPTED]
    closed = found[2]
    assert (closed.failure.stage, closed.failure.reason) == (left.spans[-1].stage, REASON)
    assert replace(closed, failure=None).cells == left.cells
    written = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")}
    close_unfinished(store)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")} == written
