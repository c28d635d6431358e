"""Tables in Markdown, and the order of settings in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.sglang.settings import STOCK, TIMED, TREES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ORDER = [
    setting.name for setting in (*STOCK, *sorted(TREES, key=lambda one: (one.config.budget, one.config.topk)), *TIMED)
]


def place(name: str) -> int:
    """Where a setting stands; unknown ones come last."""
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
