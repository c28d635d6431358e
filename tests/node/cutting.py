"""Cuts prompts by a real server's count."""

import asyncio
import itertools

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.counting import Counter, Counts
from tests.truth.harness import MODEL


def cut(server, prompts, context, numbers, counts=None, *, model=MODEL):
    """Cut prompts of several (stream, index) by the server's count."""

    async def all_of_them():
        async with EngineClient(Endpoint(server.base_url, model), timeout_s=5, stall_s=2) as client:
            counter = Counter(client, prompts.samples, counts or Counts())
            cell = Cell(context, 32, ClosedLoop(1), 1.0)
            return [await prompts.cut(cell, stream, index, counter) for stream, index in numbers]

    return asyncio.run(all_of_them())


def grid(streams, indices):
    return list(itertools.product(range(streams), range(indices)))
