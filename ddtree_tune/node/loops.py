"""The event loop of a process that measures: uvloop where it is installed, asyncio elsewhere."""

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
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(coroutine)
