"""A server that goes away in the middle of a cell: what was measured stays."""

import asyncio
import time

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.errors import EngineError
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase, RequestError
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.live import user
from ddtree_tune.node.loadgen import run_cell
from tests.truth.harness import MODEL, QUICK, cell, load, running, words


async def counted_cell(server, shape):
    """One repeat whose every prompt is counted by the server, as real ones are."""
    plain = words(shape)
    endpoint = Endpoint(server.base_url, MODEL)
    async with EngineClient(endpoint, timeout_s=5, stall_s=2) as client:

        async def cut(phase, index):
            prompt = await plain(phase, index)
            assert await client.count_tokens(user(prompt.text)) == shape.context
            return prompt

        return await run_cell(endpoint, shape, cut, repeat=0, limits=QUICK)


def test_d9_a_server_that_dies_leaves_no_throughput_and_ends_the_cell_at_once():
    with running() as server:
        server.script(die_after=12)
        start = time.perf_counter()
        run = load(server, cell(4, window_s=20.0))
        assert time.perf_counter() - start < 10
    metrics = measure([run])
    assert metrics.requests_failed >= 4
    assert {name for name, _ in metrics.errors} <= {"connect", "closed"}
    assert not metrics.scored
    assert {"failures", "short"} <= set(metrics.flags)
    assert len(run.traces) < 60  # it did not spin


@pytest.mark.parametrize("counted", [True, False])
def test_d9_what_was_measured_before_a_server_was_killed_stays(counted):
    shape = cell(4, window_s=6.0)
    with running() as server:
        server.script(gap_s=0.05)
        with server.killed_after(streams=45):
            run = asyncio.run(counted_cell(server, shape)) if counted else load(server, shape)
        assert server.process.wait(5) == -9
    done = [trace for trace in run.traces if trace.ok]
    lost = [trace for trace in run.traces if not trace.ok]
    assert run.window is not None
    assert len(done) >= 45
    assert {trace.phase for trace in done} == set(Phase)
    assert len(lost) >= 4
    assert {trace.error for trace in lost} <= {RequestError.CLOSED, RequestError.CONNECT}
    assert any(trace.chunk_tokens for trace in lost)  # what had arrived of them is kept
    metrics = measure([run])
    assert {"failures", "short"} <= set(metrics.flags)
    assert not metrics.scored
    assert metrics.ttft_s.mean > 0


def test_a_server_that_answers_and_no_longer_counts_is_an_error_of_its_own(truth):
    plain = words(cell(2))

    async def cut(phase, index):
        if phase is Phase.WINDOW and index > 2:
            raise EngineError("POST /tokenize must answer 200, but got 500")
        return await plain(phase, index)

    with pytest.raises(EngineError, match="tokenize"):
        load(truth, cell(2), cut=cut)


def test_a_server_that_refuses_everything_is_not_hammered(truth):
    truth.script(fault="500")
    start = time.perf_counter()
    run = load(truth, cell(4, window_s=30.0))
    assert time.perf_counter() - start < 10
    assert run.window is None
    assert len(run.traces) < 30
    assert {trace.error for trace in run.traces} == {RequestError.HTTP_5XX}
