"""Plain text tables for people: aligned columns, never wider than a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 100
"""Columns of a page."""
ABSENT = "-"


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows under a head; numbers to the right, the last column cut to the page.

    Args:
        head: titles; one that starts with ``>`` aligns its column to the right.
        rows: cells, as many as there are titles.
    """
    titles = [title.removeprefix(">") for title in head]
    widths = [max(len(one[i]) for one in (titles, *rows)) for i in range(len(head))]
    lines = []
    for cells in (titles, *rows):
        parts = [
            cell.rjust(width) if title.startswith(">") else cell.ljust(width)
            for cell, width, title in zip(cells, widths, head, strict=True)
        ]
        lines.append(cut("  " + "  ".join(parts).rstrip()))
    return lines


def cut(text: str, width: int = WIDTH) -> str:
    """Text on one line that fits, its end marked where some is left off."""
    line = " ".join(text.splitlines()) if "\n" in text else text
    return line if len(line) <= width else f"{line[: width - 1]}…"


def money(amount: float) -> str:
    """An amount with two digits behind the point, and with three digits in all where it is small."""
    return f"{amount:.2f}" if amount >= 1 else f"{amount:#.3g}"
