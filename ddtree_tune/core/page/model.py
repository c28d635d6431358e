"""What a page is made of: sections of paragraphs, tables, charts and code.

Text is text: nothing here is markup, so whatever a model or a server said may stand in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Absent:
    """What cannot be shown, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a head."""

    head: tuple[str, ...]
    """Titles; one that starts with ``>`` aligns its column to the right."""
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing that says what lies under the pointer."""

    title: str
    spec: dict[str, Any]
    """Vega-Lite, with its data."""


@dataclass(frozen=True, slots=True)
class Code:
    """Text as it is, in fixed width."""

    text: str
    title: str = ""
    """What it is; with one it is folded away until it is asked for."""


Block: TypeAlias = Text | Absent | Table | Chart | Code


@dataclass(frozen=True, slots=True)
class Section:
    """One question and what answers it."""

    key: str
    """Names it in links."""
    title: str
    how_to_read: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that matters, large."""

    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    title: str
    question: str
    answer: str
    """In one to three sentences."""
    partial: str | None
    """Why there may be more to come; None once the sweep is over."""
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Every chart in the order in which they stand."""
        return tuple(block for one in self.sections for block in one.blocks if isinstance(block, Chart))
