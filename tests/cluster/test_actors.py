"""A run in an actor ends as soon as it should, and never answers for another one."""

import contextlib
import os
import signal
import time

import pytest
import ray

from ddtree_tune.cluster.actors import Watched
from ddtree_tune.core.errors import EngineError, FailureClass, LoadError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.usefixtures("ray_nodes")]
WHO = (LoadError, "the load actor")


class Port:
    """Answers with its process, after a while; or breaks."""

    def run(self, wait_s=0.0, error=None):
        time.sleep(wait_s)
        if error is not None:
            raise error
        return os.getpid()


def nothing():
    """A server that lives."""


def lost():
    raise EngineError("the server is gone", FailureClass.NODE_LOST)


def test_what_measures_does_not_step_back_for_other_processes():
    asked = ray.remote(lambda: os.getpriority(os.PRIO_PROCESS, 0))
    assert ray.get(asked.remote()) == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_check_that_raises_ends_a_run_and_the_next_one_gets_its_own_answer():
    worker = Watched("port-a", Port)
    first = worker.run(nothing, *WHO)
    with pytest.raises(EngineError, match="the server is gone"):
        worker.run(lost, *WHO, 3600.0)
    assert worker.run(nothing, *WHO) != first


def test_an_actor_that_is_killed_is_ours_to_blame_and_the_next_run_gets_a_new_one():
    worker = Watched("port-b", Port)
    first = worker.run(nothing, *WHO)

    def kill():
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)

    with pytest.raises(LoadError, match="the load actor is gone: "):
        worker.run(kill, *WHO, 3600.0)
    assert worker.run(nothing, *WHO) != first


def test_a_server_that_is_gone_is_the_reason_and_not_what_its_load_met():
    worker = Watched("port-c", Port)
    met = EngineError("all connection attempts failed")
    with pytest.raises(EngineError, match="all connection attempts failed"):
        worker.run(nothing, *WHO, 0.0, met)
    with pytest.raises(EngineError, match="the server is gone"):
        worker.run(lost, *WHO, 0.0, met)
