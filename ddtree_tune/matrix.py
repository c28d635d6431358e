"""The load matrix of one server while it is measured, whoever launched the server."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import TuneError
from ddtree_tune.core.flags import PASSING
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.record import CellResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddtree_tune.core.engine import Endpoint
    from ddtree_tune.core.spec import LoadSpec
    from ddtree_tune.core.trace import CellRun
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.ports import Check, Gpus, Loader

RETRIES = 2
"""Times that a repeat of a cell which a busy moment spoiled is measured again."""


class Matrix:
    """Collects the repeats of every cell."""

    def __init__(
        self, loader: Loader, endpoint: Endpoint, *, running_cap: int | None, gpus: Gpus | None = None
    ) -> None:
        """Set up.

        Args:
            loader: sends the load.
            endpoint: where to.
            running_cap: most requests that the server runs at once, by its own word.
            gpus: of the server's node; None where they are not to be seen from here.
        """
        self._loader = loader
        self._endpoint = endpoint
        self._running_cap = running_cap
        self._gpus = gpus
        self._runs: dict[Cell, list[CellRun]] = {}
        self._set_aside: Counter[Cell] = Counter()
        self._results: dict[Cell, CellResult] = {}

    @staticmethod
    def order(load: LoadSpec) -> Iterator[tuple[Cell, int]]:
        """Every cell and repeat, the repeats interleaved over the cells: a drift must not hit one cell alone.

        The cells that come first come with all their repeats, then the others.
        """
        first = load.first_cells()
        rest = [cell for cell in load.cells() if cell not in first]
        return ((cell, repeat) for part in (first, rest) for repeat, cell in product(range(load.repeats), part))

    @property
    def results(self) -> tuple[CellResult, ...]:
        """The cells that were measured so far."""
        return tuple(self._results.values())

    def measure(self, cell: Cell, repeat: int, *, check: Check) -> CellResult:
        """Measure one repeat; a busy moment of the machine is waited out by measuring again.

        Args:
            cell: the shape of the load.
            repeat: which repeat this is.
            check: raises TuneError if the server has ended meanwhile.

        Returns:
            The cell over all its repeats so far.
        """
        run = self._run(cell, repeat, check, spoiled=None)
        for _ in range(RETRIES):
            if not PASSING.intersection(measure([run]).flags):
                break
            run = self._run(cell, repeat, check, spoiled=run)
            self._set_aside[cell] += 1
        return self._add(cell, run)

    def _run(self, cell: Cell, repeat: int, check: Check, *, spoiled: CellRun | None) -> CellRun:
        """Measure once; what breaks leaves all that was seen of the repeat until then, flagged."""
        try:
            run = self._loader.run(self._endpoint, cell, repeat, check)
            run = self._gpus.metered(run) if self._gpus else run
        except BaseException:
            if spoiled is not None:
                self._add(cell, spoiled)
            raise
        try:
            check()
        except TuneError:
            self._add(cell, run)
            raise
        return run

    def _add(self, cell: Cell, run: CellRun) -> CellResult:
        runs = self._runs.setdefault(cell, [])
        runs.append(run)
        metrics = measure(runs, running_cap=self._running_cap, set_aside=self._set_aside[cell])
        self._results[cell] = CellResult(metrics, tuple(runs))
        return self._results[cell]
