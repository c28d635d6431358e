"""The load generator in a plain process of its own, where no Ray is wanted."""

from __future__ import annotations

import signal
from multiprocessing import get_context
from typing import TYPE_CHECKING, Self

from ddtree_tune.core.errors import LoadError, TuneError, boundary
from ddtree_tune.node.loadgen import NodeLoader
from ddtree_tune.ports import CHECK_PERIOD_S

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.spec import LoadSpec
    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.ports import Check

_GRACE_S = 2.0


class LoaderProcess:
    """``ports.Loader`` in a child process: a display in the caller's cannot spoil its clock."""

    def __init__(self, load: LoadSpec, *, seed: int, stall_s: float) -> None:
        """Set up as ``NodeLoader``, in the child."""
        self._made_of = (load, seed, stall_s)
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, endpoint: Endpoint, cell: Cell, repeat: int, check: Check) -> CellRun:
        """See ``ports.Loader``.

        Raises:
            LoadError: the process is gone.
        """
        try:
            self._pipe.send((endpoint, cell, repeat))
            while not self._pipe.poll(CHECK_PERIOD_S):
                check()
            result: CellRun | TuneError = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(_GRACE_S)
            raise LoadError(
                f"the load process must live as long as the measurement, but it ended with {self._process.exitcode}"
            ) from None
        except TuneError:
            self._end()  # what it would still send is no answer to the next question
            self._begin()
            raise
        if isinstance(result, TuneError):
            raise result
        return result

    def _begin(self) -> None:
        spawn = get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, *self._made_of), daemon=True)
        self._process.start()
        theirs.close()

    def _end(self) -> None:
        self._process.terminate()
        self._process.join(_GRACE_S)
        if self._process.is_alive():
            self._process.kill()
        self._pipe.close()


def _serve(pipe: Connection, load: LoadSpec, seed: int, stall_s: float) -> None:
    """Measure whatever comes through the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, which then ends us
    loader: NodeLoader | None = None
    while True:
        try:
            endpoint, cell, repeat = pipe.recv()
        except EOFError:
            return
        try:
            with boundary(LoadError, "send the load"):
                loader = loader or NodeLoader(load, seed=seed, stall_s=stall_s)
                pipe.send(loader.run(endpoint, cell, repeat))
        except TuneError as error:
            pipe.send(error)
