"""The load generator in a process of its own."""

import pytest

from ddtree_tune.core.engine import Endpoint, Route
from ddtree_tune.core.errors import EngineError, FailureClass, LoadError
from ddtree_tune.core.spec import LoadSpec
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.apart import LoaderProcess
from tests.truth.harness import running
from tests.truth.server import MODEL

LOAD = LoadSpec(contexts=(60, 200), concurrency=(2,), output_tokens=16, window_s=0.3)


def well():
    pass


def test_a_run_that_was_given_up_does_not_answer_for_the_next_one():
    short, long = LOAD.cells()
    looks = []

    def lost():
        looks.append(1)
        raise EngineError("the server is lost", FailureClass.CRASH_REQUEST)

    with running() as server, LoaderProcess(LOAD, seed=0, stall_s=30) as loader:
        server.script(ttft_s=0.02, gap_s=0.4, steps=[1])  # six seconds a reply: the check comes first
        endpoint = Endpoint(server.base_url, MODEL, Route.CHAT)
        with pytest.raises(EngineError, match="the server is lost"):
            loader.run(endpoint, long, 0, lost)
        assert looks == [1]
        server.script(ttft_s=0.01, gap_s=0.005, steps=[4])
        run = loader.run(endpoint, short, 0, well)
        assert run.cell == short
        assert {trace.completion_tokens for trace in run.traces if trace.ok and trace.phase is Phase.WINDOW} == {16}


def test_a_load_process_that_dies_is_an_error_of_the_load():
    with running() as server, LoaderProcess(LOAD, seed=0, stall_s=30) as loader:
        server.script(ttft_s=0.02, gap_s=0.4, steps=[1])

        def kill():
            loader._process.kill()

        with pytest.raises(LoadError, match="it ended with -9"):
            loader.run(Endpoint(server.base_url, MODEL, Route.CHAT), LOAD.cells()[0], 0, kill)
