"""Whether a text is what a broken kernel writes rather than what a model says.

The rules look for output that no reader would take for an answer: a unit that repeats until the
text ends, special tokens in a row, alphabets mixed at random. Each leaves alone what replies hold
rightly: rules of ``=``, tables, padded data, zeros in a matrix, words of many languages. A healthy
model may still loop, above all behind the natural end of its answer; ``core.coherence`` therefore
compares with no speculation and never judges by one text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Degeneration(StrEnum):
    """What is wrong with a text."""

    LOOP = "loop"
    """Its end is one unit over and over; one repeated character is the shortest unit."""
    SPECIAL_TOKENS = "special_tokens"
    """Padding, end-of-text or undecodable tokens in a row."""
    MIXED_SCRIPTS = "mixed_scripts"
    """Letters of unrelated alphabets side by side, again and again."""


_LOOP_CHARS = 200
"""A loop is as long at least, unless it is most of the text; a rule of 120 columns is not one."""
_LOOP_UNITS = 5
"""A unit stands there as often at least."""
_WHOLE_SHARE, _WHOLE_CHARS = 0.8, 60
"""A short text is a loop where so much of it repeats."""
_RAGGED_CHARS, _RAGGED_SHARE, _RAGGED_END = 2000, 0.9, 8
"""A loop with a counter in it repeats nearly, and its last characters exactly, for as long.

Shorter stretches are found in good replies: a column of tests that differ by a digit."""
_LOOKED_AT = 6000
"""Characters of the end in which loops are looked for."""
_SPECIAL = re.compile(
    r"(?:(?:<\|[^|<>\n]{1,40}\|>|<(?:pad|unk|s|/s|eos|bos)>|\[(?:PAD|UNK|SEP|CLS)\]|[\x00\ufffd\ufffe\uffff])\s*){8}",
    re.IGNORECASE,
)
"""Eight in a row, none of which a detokeniser should let through."""
_SWITCHES, _SCRIPTS = 12, 3
"""So many switches among so many scripts are a mixture."""

_STARTS, _SCRIPT_OF = zip(
    *(
        (0x0000, "latin"),
        (0x0370, "greek"),
        (0x0400, "cyrillic"),
        (0x0530, "armenian"),
        (0x0590, "hebrew"),
        (0x0600, "arabic"),
        (0x0780, "thaana"),
        (0x0900, "devanagari"),
        (0x0980, "bengali"),
        (0x0A00, "gurmukhi"),
        (0x0A80, "gujarati"),
        (0x0B00, "oriya"),
        (0x0B80, "tamil"),
        (0x0C00, "telugu"),
        (0x0C80, "kannada"),
        (0x0D00, "malayalam"),
        (0x0D80, "sinhala"),
        (0x0E00, "thai"),
        (0x0E80, "lao"),
        (0x0F00, "tibetan"),
        (0x1000, "myanmar"),
        (0x10A0, "georgian"),
        (0x1100, "cjk"),
        (0x1200, "ethiopic"),
        (0x1400, "other"),
        (0x1780, "khmer"),
        (0x1800, "mongolian"),
        (0x1E00, "latin"),
        (0x1F00, "greek"),
        (0x2000, "latin"),
        (0x2E80, "cjk"),
        (0xA500, "other"),
        (0xAC00, "cjk"),
        (0xD800, "other"),
        (0xF900, "cjk"),
        (0xFB00, "latin"),
        (0xFB1D, "hebrew"),
        (0xFB50, "arabic"),
        (0xFF00, "cjk"),
        (0x10000, "other"),
        (0x1D400, "latin"),
        (0x20000, "cjk"),
    ),
    strict=True,
)
"""First code point of each stretch of one script; Han, Kana, Bopomofo and Hangul are one, for they mix."""


def degeneration(text: str) -> Degeneration | None:
    """What is wrong with a text, if anything.

    Args:
        text: reasoning and answer, as far as they came.
    """
    if _SPECIAL.search(text):
        return Degeneration.SPECIAL_TOKENS
    if is_loop(text):
        return Degeneration.LOOP
    return Degeneration.MIXED_SCRIPTS if mixes_scripts(text) else None


def is_loop(text: str) -> bool:
    """Whether a text ends in one unit over and over.

    Exactly, for 200 characters and five units, or for most of a short text. Or nearly: for 2000
    characters nine tenths of them equal those one unit earlier, and the last eight do exactly, so
    that the loop was going on when the text ended.
    """
    tail = text[-_LOOKED_AT:]
    for period in _periods(tail):
        run = _exact_run(tail, period)
        if run >= _LOOP_UNITS * period and (
            run >= _LOOP_CHARS or (run >= _WHOLE_CHARS and run >= _WHOLE_SHARE * len(text))
        ):
            return True
        if _LOOP_UNITS * period <= _RAGGED_CHARS <= len(tail) and _near_share(tail, period) >= _RAGGED_SHARE:
            return True
    return False


def _periods(tail: str) -> Iterator[int]:
    """Distances at which the last characters of a text stood before."""
    end = tail[-_RAGGED_END:]
    at = len(tail) - len(end)
    first = at - len(tail) // _LOOP_UNITS
    while len(end) == _RAGGED_END and (found := tail.rfind(end, max(first, 0), at + _RAGGED_END - 1)) >= 0:
        yield len(tail) - len(end) - found
        at = found


def _exact_run(tail: str, period: int) -> int:
    """Length of the end of a text in which each character equals the one a period earlier."""
    low, high = 0, len(tail) - period
    while low < high:  # a longer end that repeats contains every shorter one
        middle = (low + high + 1) // 2
        same = tail[len(tail) - middle :] == tail[len(tail) - middle - period : len(tail) - period]
        low, high = (middle, high) if same else (low, middle - 1)
    return low + period if low else 0


def _near_share(tail: str, period: int) -> float:
    """Share of the last characters that equal the ones a period earlier."""
    end = tail[-_RAGGED_CHARS:]
    pairs = zip(end[period:], end, strict=False)
    return sum(one == other for one, other in pairs) / (len(end) - period)


def mixes_scripts(text: str) -> bool:
    """Whether letters of unrelated scripts follow each other as no text has them.

    A switch is a change between two scripts neither of which is Latin, with nothing but space
    between them, or a change from or to Latin inside a word. Scripts that are written without
    spaces, and Greek for its symbols, may stand beside Latin. Twelve switches among three scripts
    are a mixture.
    """
    if text.isascii():
        return False
    switches: Counter[frozenset[str]] = Counter()
    before, adjacent = "", False
    for letter in text:
        if letter.isalpha():
            script = _SCRIPT_OF[bisect(_STARTS, ord(letter)) - 1]
            pair = frozenset((before, script))
            if before and len(pair) > 1 and ("latin" not in pair or (adjacent and not pair & _BESIDE_LATIN)):
                switches[pair] += 1
            before, adjacent = script, True
        elif letter.isspace():
            adjacent = False
        elif not unicodedata.category(letter).startswith("M"):
            before, adjacent = "", False
    return switches.total() >= _SWITCHES and len(frozenset().union(*switches)) >= _SCRIPTS


_BESIDE_LATIN = frozenset({"cjk", "thai", "lao", "khmer", "myanmar", "tibetan", "greek", "other"})
"""Scripts whose letters stand beside Latin ones without a space in good text."""
