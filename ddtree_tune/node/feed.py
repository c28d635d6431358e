"""The prompts of a cell, cut before they are needed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ddtree_tune.core.trace import Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ddtree_tune.node.prompts import Prompt
    from ddtree_tune.node.watch import Share

    Cut = Callable[[Phase, int], Awaitable[Prompt]]
    """Gives the prompt of a phase and an index."""


class Feed:
    """A process's share of the cell's prompts, in their order, cut ahead of need where possible."""

    def __init__(self, cut: Cut, share: Share) -> None:
        self._cut = cut
        self._share = share
        self._ready: dict[Phase, deque[Prompt]] = {phase: deque() for phase in Phase}
        self._made = dict.fromkeys(Phase, 0)
        self._lock = asyncio.Lock()

    async def ahead(self, phase: Phase, count: int) -> None:
        """Cut until so many prompts of the phase have been made in all."""
        while self._made[phase] < count:
            await self._make(phase)
            await asyncio.sleep(0)  # streams go first, also where cutting waits for nothing

    async def take(self, phase: Phase) -> Prompt:
        """The next prompt of the phase; waits only if none is ready."""
        while not self._ready[phase]:
            await self._make(phase)
        return self._ready[phase].popleft()

    async def _make(self, phase: Phase) -> None:
        async with self._lock:
            prompt = await self._cut(phase, self._made[phase] * self._share.of + self._share.number)
            self._made[phase] += 1
            self._ready[phase].append(prompt)
