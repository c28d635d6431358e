"""One load process of a crew: ``python -m ddtree_tune.node.member FD``, started by `crew` alone.

It gets its job over the socket that it inherits, tells what it has seen at every tick, takes the
parent's orders, and sends its traces at the end. When the parent dies the socket closes, and so
does this process. Ctrl-C reaches every process of a terminal's group: here it is the parent's to
decide, so it is ignored.
"""

from __future__ import annotations

import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import TuneError
from ddtree_tune.node import loops
from ddtree_tune.node.watch import Orders, Tally

if TYPE_CHECKING:
    from ddtree_tune.node.loadgen import Job
    from ddtree_tune.node.watch import Share


def main(line: Connection) -> int:
    """Measure a share of a cell; return 1 if the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 0
    try:
        job, share = line.recv()
        line.send(time.perf_counter_ns())
        line.send(_measure(job, share, line))
    except* (EOFError, OSError):
        code = 1
    return code


def _measure(job: Job, share: Share, line: Connection) -> object:
    orders = Orders()

    def lead(tally: Tally) -> Orders:
        nonlocal orders
        line.send(tally)
        while line.poll():
            orders = line.recv()
        return orders

    try:
        return loops.run(job.measure(share, lead)), job.counts
    except TuneError as error:
        return error


if __name__ == "__main__":
    sys.exit(main(Connection(int(sys.argv[1]))))
