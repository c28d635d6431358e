"""The event loop of a process that measures: uvloop where it is installed, asyncio elsewhere.

Measured (benchmarks/load): with uvloop a chunk of 64 streams costs about a sixth less CPU time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Result = TypeVar("Result")

new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
try:
    import uvloop
except ImportError:
    pass  # there is none for Windows
else:
    new_loop = uvloop.new_event_loop


def run(coroutine: Coroutine[object, object, Result]) -> Result:
    """Run to the end on a loop of its own, as ``asyncio.run`` does."""
    results: list[Result] = []

    async def keep() -> None:
        # A task that holds a cell's traces is written out as text, twice, when the runner takes its
        # signal handler back: 0.1 s for 25,000 chunks.
        results.append(await coroutine)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(keep())
    return results[0]
