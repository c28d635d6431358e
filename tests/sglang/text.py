"""What the fake model says, and how it counts tokens."""

from __future__ import annotations

import hashlib
import random
import re
import zlib
from pathlib import Path

STOP = 2
"""The token that ends an answer."""
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])|\s+\Z")
_CLAMP = "clamp(value, low, high)"
_THOUGHT = (
    "<think>\nI need `clamp(value, low, high)`: it limits `value` to the range from `low` to `high`. The idea is to "
    "{idea}. Edge case: a value inside is unchanged.\n</think>\n"
)
_GOOD = """Here is the function:

```python
def clamp(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value
```

It works like this: compare with both bounds. Note that a value inside is unchanged."""
_OTHER = """Here is the function:

```python
def clamp(value, low, high):
    return max(low, min(value, high))
```

It works like this: the smaller of value and high, but never below low."""
_WAYS = {"good": ("compare with both bounds", _GOOD), "other": ("nest two calls", _OTHER)}
_SUBJECTS = "The parser|A scheduler|Each worker|The index|One thread|The cache|A caller|This module|The loop|Every test"
_VERBS = "reads|keeps|returns|splits|sorts|checks|drops|copies|merges|counts|stores|skips"
_OBJECTS = (
    "the first line|a sorted list|its own queue|two small buffers|the last result|an open file|every second item|"
    "a table of names|the longest match|old entries|the next block|a pair of bounds"
)
_ENDS = "before noon|without a lock|in one pass|as the caller asked|when it is full|for each key|at the end|once more"


class Words:
    """A token is a word or a sign, with the space before it."""

    def pieces(self, text: str) -> tuple[list[int], list[str]]:
        """Token ids, and the text of each."""
        parts = _PIECE.findall(text)
        return [zlib.crc32(part.encode()) % 50_000 + 10 for part in parts], parts

    def render(self, messages: list[dict], options: dict) -> str:
        """The prompt of a conversation."""
        said = "".join(f"<user> {message['content']} <end>\n" for message in messages)
        return f"{said}<assistant>\n"


class Folder:
    """The tokenizer and the chat template of a model's folder."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer

        from ddtree_tune.node.template import chat_template

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._template = chat_template(str(folder))

    def pieces(self, text: str) -> tuple[list[int], list[str]]:
        """Token ids, and the text of each; a token inside a character holds none of it."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ends = [end for _, end in encoding.offsets]
        return encoding.ids, [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def render(self, messages: list[dict], options: dict) -> str:
        """The prompt of a conversation."""
        return self._template.render(messages, options)


def codec(model_path: str) -> Words | Folder:
    """What counts this model's tokens."""
    return Folder(Path(model_path)) if (Path(model_path) / "tokenizer.json").is_file() else Words()


def answer(prompt: str, kind: str, *, salt: str, thinks: bool) -> str:
    """What the model says to a prompt, up to its natural end.

    Args:
        prompt: what is asked.
        kind: "good", "nan" or "lossy".
        salt: makes sampled answers differ; empty for greedy ones.
        thinks: whether it reasons first.
    """
    if kind == "nan":
        return "!" * 1000
    if _CLAMP in prompt:
        idea, code = _WAYS["good" if kind == "good" else "other"]
        return (_THOUGHT.format(idea=idea) if thinks else "") + code
    seed = hashlib.sha256((salt + prompt).encode()).hexdigest()
    draw = random.Random(seed)
    said = [_sentences(draw, 1)]
    if kind == "lossy":
        draw = random.Random(seed + kind)
    said += [_sentences(draw, 2), _sentences(draw, 3)]
    head = "<think>\n{} {}\n</think>\n{}\n\n" if thinks else "{} {} {}\n\n"
    name, step = draw.choice(("total", "count", "best", "span")), draw.randrange(2, 90)
    code = f"```python\ndef {name}(items):\n    return sum(item // {step} for item in items)\n```"
    return f"{head.format(*said)}{code}\n\n{_sentences(draw, 4)}"


def more(text: str) -> str:
    """What follows the natural end, where it is ignored: prose that does not repeat, or more of the same."""
    return text if set(text) == {"!"} else " " + _sentences(random.Random(text), 200)


def _sentences(draw: random.Random, count: int) -> str:
    return " ".join(
        f"{draw.choice(_SUBJECTS.split('|'))} {draw.choice(_VERBS.split('|'))} {draw.choice(_OBJECTS.split('|'))} "
        f"{draw.choice(_ENDS.split('|'))}, {draw.randrange(10, 9999)} of them."
        for _ in range(count)
    )


def split_reasoning(text: str) -> tuple[str, str]:
    """Reasoning and answer, as a reasoning parser splits what has come so far.

    A tag that is not whole yet belongs to neither.
    """
    if not text.startswith("<think>"):
        return ("", "") if "<think>".startswith(text) else ("", text)
    inside, closed, rest = text.removeprefix("<think>").partition("</think>")
    if closed:
        return inside.strip("\n"), rest.lstrip("\n")
    for length in range(len("</think>") - 1, 0, -1):
        if inside.endswith("</think>"[:length]):
            inside = inside[:-length]
            break
    return inside.strip("\n"), ""
