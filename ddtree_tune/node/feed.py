"""The prompts of a cell, cut before they are needed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import first_of
from ddtree_tune.core.trace import Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ddtree_tune.node.prompts import Prompt
    from ddtree_tune.node.watch import Share

    Cut = Callable[[Phase, int], Awaitable[Prompt]]
    """Gives the prompt of a phase and an index."""

_AT_ONCE = 8
"""Prompts cut at a time: each asks the server to count, and a server under load answers late."""


class Feed:
    """A process's share of the cell's prompts, in their order, cut ahead of need where possible."""

    def __init__(self, cut: Cut, share: Share) -> None:
        self._cut = cut
        self._share = share
        self._ready: dict[Phase, deque[Prompt]] = {phase: deque() for phase in Phase}
        self._made = dict.fromkeys(Phase, 0)
        self._cutting = asyncio.Semaphore(_AT_ONCE)

    async def ahead(self, phase: Phase, count: int) -> None:
        """Cut until so many prompts of the phase have been made in all; one call at a time for a phase."""
        wanted = range(self._made[phase], count)
        self._made[phase] = max(self._made[phase], count)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(phase, number)) for number in wanted]
        except BaseExceptionGroup as errors:
            raise (first_of(errors) or errors) from None
        self._ready[phase].extend(task.result() for task in tasks)

    async def take(self, phase: Phase) -> Prompt:
        """The next prompt of the phase; cuts one, ahead of all others, if none is ready."""
        if self._ready[phase]:
            return self._ready[phase].popleft()
        number = self._made[phase]
        self._made[phase] += 1
        return await self._cut(phase, self._index(number))

    async def _one(self, phase: Phase, number: int) -> Prompt:
        async with self._cutting:
            prompt = await self._cut(phase, self._index(number))
            await asyncio.sleep(0)  # streams go first, also where cutting waits for nothing
            return prompt

    def _index(self, number: int) -> int:
        return number * self._share.of + self._share.number
