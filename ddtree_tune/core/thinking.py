"""Where the thinking ends and the answer begins.

Servers split them only with the right parser, so content may hold tags of any family: closed,
never closed, repeated, or only the closing one because the chat template wrote the opening one.
Tags inside a program's strings are data. What precedes a closing tag is never the answer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ddtree_tune.core.fences import blocks
from ddtree_tune.core.source import defines_anything, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = r"(?:\w+[:_])?think(?:ing)?|thoughts?|reasoning|reflection|scratchpad"
_TAG = re.compile(
    rf"""
    (?P<open>
        <(?P<name>{_NAMES})(?:\s[^<>\n]*)?>
      | \u25c1(?P<kimi>think)\u25b7
      | \[(?P<bracket>THINK)\]
      | <\|(?:begin_of_|START_)(?P<token>thought|THINKING)\|>
      | <\|channel\|>(?P<channel>analysis|commentary)\b[^<]*<\|message\|>
    )
  | (?P<close>
        </\s*(?P<end_name>{_NAMES})\s*>
      | \u25c1/(?P<end_kimi>think)\u25b7
      | \[/(?P<end_bracket>THINK)\]
      | <\|(?:end_of_|END_)(?P<end_token>thought|THINKING)\|>
      | (?:<\|end\|>\s*)?(?:<\|start\|>assistant\s*)?<\|channel\|>(?P<end_channel>final)\b[^<]*<\|message\|>
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TURN = r"im_start|start_header_id|start|assistant|im_assistant|begin_of_text|startoftext|bos"
_LEADING = re.compile(
    rf"\A\s*(?:<\|(?:{_TURN}|im_middle|end_header_id)\|>|<bos>|<s>|<start_of_turn>"
    r"|<\uff5c(?:begin\u2581of\u2581sentence|Assistant)\uff5c>)(?:(?:assistant|model)(?=\s|<|\Z))?"
)
TOOL_CALL = re.compile(
    r"<\|tool_calls?_section_begin\|>|<\uff5ctool\u2581calls\u2581begin\uff5c>|<tool_call>|\[TOOL_CALLS\]"
)
"""Where a model stops answering and calls a tool."""
_END = re.compile(
    rf"{TOOL_CALL.pattern}|<\|(?:im_end|endoftext|eot_id|end_of_text|eom_id|end|return|call|EOT|user|im_user|im_start|"
    r"start_header_id|system|pad)\|>|<end_of_turn>|<start_of_turn>|</s>|<eos>|<pad>|\[EOS\]"
    r"|<\uff5c(?:end\u2581of\u2581sentence|User)\uff5c>"
)
"""Control tokens behind which the turn is over."""


@dataclass(frozen=True, slots=True)
class Split:
    """A reply's text in its two parts."""

    answer: str
    thinking: str
    is_open: bool
    """Whether the text ended inside the thinking."""
    notes: tuple[str, ...] = ()
    """What was unusual."""


_QUOTED = re.compile(r"[^`]`{2}[^`]|.'{2}.|.\"{2}.", re.DOTALL)
"""Two characters before and two behind a tag that is quoted; a fence of backticks is no quote."""
_MOST_CHARS = 400
"""A line longer than this is prose."""


class _Tag(NamedTuple):
    start: int
    end: int
    opens: bool
    family: str


def split_thinking(text: str, *, is_separated: bool = False) -> Split:
    """Split a reply's content.

    Args:
        text: the content, tags and all.
        is_separated: whether the server has given thinking in a field of its own, so that a lone
            closing tag at the very end is a leak and not the end of the thinking.

    Returns:
        The answer without control tokens, and the thinking.
    """
    if defines_anything(parse(text)):
        return Split(text, "", is_open=False)
    answer: list[str] = []
    thinking: list[str] = []
    notes: list[str] = []
    family = ""
    at = 0
    content_end = _content_end(text)
    for tag in _tags(text):
        before = text[at : tag.start]
        if family:
            if tag.opens or tag.family != family:
                continue
            thinking.append(before)
            family = ""
            is_separated = True
        elif tag.opens:
            answer.append(before)
            family = tag.family
        elif is_separated and tag.end >= content_end:
            answer.append(before)
            notes.append("a closing tag at the end was left out")
        else:
            thinking += [*answer, before]
            answer = []
            is_separated = True
            notes.append("thinking ended without an opening tag")
        at = tag.end
    (thinking if family else answer).append(text[at:])
    if family:
        notes.append("the thinking was never closed")
    said = "\n".join(part.strip("\n") for part in answer if part.strip())
    return Split(_without_control(said), "\n".join(thinking), bool(family), tuple(dict.fromkeys(notes)))


def opened(prompt: str) -> str:
    """The tag with which a prompt itself begins the reply's thinking, as chat templates do; empty if it does not."""
    last = max(_TAG.finditer(prompt), key=re.Match.start, default=None)
    return (last["open"] or "") if last and not prompt[last.end() :].strip() else ""


def _content_end(text: str) -> int:
    """Where a text ends but for blanks, closing tags and control tokens."""
    tokens = [match.span() for pattern in (_END, _TAG) for match in pattern.finditer(text)]
    end = len(text.rstrip())
    for start, stop in sorted(tokens, reverse=True):
        if stop != end:
            break
        end = len(text[:start].rstrip())
    return end


def _tags(text: str) -> Iterator[_Tag]:
    """The tags that are tags: an opening one begins a line, none stands inside a program's strings."""
    code = _CodeLines(text)
    fresh = 0
    for match in _TAG.finditer(text):
        opens = match["open"] is not None
        name = next(value for key, value in match.groupdict().items() if value and key not in {"open", "close"})
        line_start = text.rfind("\n", 0, match.start()) + 1
        if opens and text[max(line_start, fresh) : match.start()].strip() and "channel" not in match[0].lower():
            continue
        if code.holds(match.start(), match.end()):
            continue
        fresh = match.end()
        yield _Tag(match.start(), match.end(), opens, _family(match[0], name))


def _family(tag: str, name: str) -> str:
    """What an opening and its closing tag have in common."""
    if "channel|" in tag.lower():
        return "channel"
    plain = name.lower().replace("thinking", "think")
    return tag.lstrip()[0] + ("|" if "|" in tag else "") + plain.removesuffix("s")


class _CodeLines:
    """Says whether a place in a text is a string of a program."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] | None = None
        self._spans: list[tuple[int, int]] = []

    def holds(self, start: int, end: int) -> bool:
        """Whether what stands from ``start`` to ``end`` is data: quoted, or part of a program."""
        text = self._text
        if _QUOTED.match(text[max(start - 2, 0) : start].rjust(2) + text[end : end + 2].ljust(2)):
            return True
        line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        line = text[line_start : len(text) if line_end < 0 else line_end].strip()
        short = len(line) <= _MOST_CHARS and "#" not in text[line_start:start]
        if short and any(parse(line + rest) is not None for rest in ("", " pass")):
            return True
        if self._starts is None:
            self._starts = [0, *accumulate(len(one) + 1 for one in text.split("\n"))]
            self._spans = [(one.first_line, one.body_end) for one in blocks(text) if parse(one.body)]
        number = bisect_right(self._starts, start) - 1
        return any(first < number < last for first, last in self._spans)


def _without_control(text: str) -> str:
    """Text without the tokens that begin a turn, up to the first that ends one."""
    while (led := _LEADING.match(text)) and led.end():
        text = text[led.end() :]
    code = _CodeLines(text)
    for match in _END.finditer(text):
        if not code.holds(match.start(), match.end()):
            return text[: match.start()]
    return text
