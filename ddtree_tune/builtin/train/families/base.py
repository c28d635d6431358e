"""What a family of programming tasks is, and the words its examples are drawn from.

A family is data: templates with `$name` holes, and a function that draws arguments. Nothing here
renders a prompt; that is `tasks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

TEXT = "text s sentence phrase"
NUMBERS = "nums values numbers xs"
ITEMS = "items values elements seq"
NUMBER = "n num number limit"

WORDS = [
    "red",
    "blue",
    "fox",
    "tree",
    "code",
    "data",
    "moon",
    "star",
    "lamp",
    "river",
    "stone",
    "cloud",
    "apple",
    "bread",
    "chair",
    "mouse",
    "plant",
    "tiger",
    "water",
    "zebra",
    "level",
    "noon",
    "radar",
    "kayak",
    "civic",
    "list",
    "node",
    "tar",
    "rat",
    "art",
    "eat",
    "tea",
    "ate",
]


@dataclass(frozen=True, slots=True)
class Rule:
    """One interchangeable part of a task, in words and in code."""

    words: str
    code: str


@dataclass(frozen=True, slots=True)
class Family:
    """Tasks that differ in names, wording and constants but not in the algorithm.

    Holes: `$a`, `$b`, `$c` are the parameters; the keys of `names` are local names; the keys of
    `rules` give `$KEY_words` and `$KEY_code`; the keys of `constants` give whole numbers.
    """

    name: str
    stems: str
    """Function names, separated by spaces."""
    parameters: tuple[str, ...]
    """For each parameter its possible names, separated by spaces."""
    says: tuple[str, ...]
    """Descriptions that follow "a function that"."""
    body: str
    """The reference solution below its `def` line, indented by four spaces."""
    plan: str
    """How it works; follows "The idea is to"."""
    edge: str
    """The edge case, as a sentence without a capital."""
    arguments: Callable[[Random], tuple[Any, ...]]
    """Draws one call's arguments."""
    edges: tuple[tuple[Any, ...], ...] = ()
    """Arguments of the calls that every test set holds."""
    names: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    constants: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """For each constant its smallest and largest value."""


def words(rng: Random, most: int = 4) -> str:
    """Draw a sentence of two to ``most`` words."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, most)))


def integers(rng: Random, most: int = 6, low: int = 0, high: int = 20) -> list[int]:
    """Draw a list of three to ``most`` whole numbers."""
    return [rng.randint(low, high) for _ in range(rng.randint(3, most))]
