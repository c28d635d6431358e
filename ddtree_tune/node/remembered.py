"""Prompts cut once for all servers that count alike.

The trials of a sweep serve one model under many settings, and cutting a prompt asks the server to
count several times. A server counts alike if it gives the same lengths to a sample of every kind of
text; what a prompt really costs is seen in the usage of each request all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.counting import Counter, Lengths
    from ddtree_tune.node.prompts import Prompt, Prompts

    _Key: TypeAlias = tuple[Lengths, int, int, int]
    """How the server counts, context, stream, index."""


class RememberedPrompts:
    """``Prompts`` that keeps what it has cut."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._known: dict[_Key, Prompt] = {}
        self.sha256 = prompts.sha256
        self.samples: Mapping[str, str] = prompts.samples

    async def cut(self, cell: Cell, stream: int, index: int, counter: Counter) -> Prompt:
        """See ``Prompts``."""
        key = (await counter.lengths(), cell.context, stream, index)
        if key not in self._known:
            self._known[key] = await self._prompts.cut(cell, stream, index, counter)
        return self._known[key]
