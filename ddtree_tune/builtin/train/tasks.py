"""Draws programming tasks with their worked replies, and keeps some names and wordings held out.

A fifth of all function names never occurs in training, nor do the held-out wordings. Held-out names
are new combinations of trained parts: a pass says that the prompt was read, not that any name can be
copied. Needs the standard library only.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Any, Literal

from ddtree_tune.builtin.train.families import FAMILIES
from ddtree_tune.builtin.train.families.base import WORDS

if TYPE_CHECKING:
    from random import Random

    from ddtree_tune.builtin.train.families import Family

Split = Literal["train", "held_out"]

PREFIXES = [
    "",
    "",
    "",
    "my_",
    "do_",
    "get_",
    "run_",
    "fast_",
    "simple_",
    "safe_",
    "new_",
    "try_",
    "calc_",
    "the_",
    "quick_",
]
SUFFIXES = ["", "", "", "_v2", "_v3", "_fn", "_of", "_here", "_now", "_impl", "_util", "_main", "_x", "_py", "_task"]
ASKS: dict[Split, tuple[str, ...]] = {
    "train": (
        "Write a Python function `$signature` that $says.",
        "Please implement `$signature`. It $says.",
        "I need a function `$signature` which $says.",
        "Can you code `$signature` in Python? The function $says.",
        "Create `$signature`, a function that $says.",
        "Implement a helper `$signature` that $says.",
        "Define `$signature` so that it $says.",
        "Write `$signature`. It $says.",
        'Complete this function:\n```python\ndef $signature:\n    """$Says."""\n```\n',
        'def $signature:\n    """$Says."""\n',
    ),
    "held_out": (
        "Could you write `$signature`? It $says.",
        "Give me a Python function `$signature` that $says.",
        "Please code a helper `$signature` which $says.",
        "A function `$signature` is missing: it $says.",
        'Finish this function:\n```python\ndef $signature:\n    """$Says."""\n```\n',
    ),
}
EXAMPLES = (
    "Example: `$call` returns `$result`.",
    "For example, `$call` should give `$result`.",
    "`$call` is `$result`.",
)
DOCSTRINGS = ("Add a docstring.", "Include a docstring.")
STYLES = {
    "short": ("Use short variable names.", "Short names please."),
    "long": ("Use clear variable names.", "Prefer descriptive names."),
}
RESTATES = (
    "The user wants `$signature`. It $says.",
    "I need `$signature`: it $says.",
    "So `$signature` $says.",
)
PLANS = ("Plan: $plan.", "The idea is to $plan.", "I will $plan.")
CHECKS = (" The example: `$call` must give `$result`.", " Check with the example: `$call` is `$result`.")
CLOSES = ("This works, now finish it.", "The rest follows from the plan.", "Good, write the full version.")
OPENS = ("Here is the function:", "Here is `$function`:", "This does it:")


@dataclass(frozen=True, slots=True)
class Task:
    """One programming task and its worked reply."""

    family: str
    function: str
    prompt: str
    thought: str
    """What stands between `<think>` and `</think>`: a plan and an unfinished draft."""
    answer: str
    """What follows: the full program and a remark."""
    code: str
    """The reference solution."""

    @property
    def reply(self) -> str:
        """The reply as the model writes it."""
        return f"<think>\n{self.thought}\n</think>\n{self.answer}"


def is_held_out(function: str) -> bool:
    """Whether a function name is kept from training, which a fifth of all names is."""
    return sum(ord(letter) * (at + 7) for at, letter in enumerate(function)) % 5 == 0


def evaluate(code: str, function: str, arguments: tuple[Any, ...]) -> Any:
    """Run our own reference code on a copy of the arguments."""
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope[function](*copy.deepcopy(arguments))


def draw_function(rng: Random, family: Family, split: Split) -> str:
    """Draw a function name that belongs to the split; one in twelve says nothing about the task."""
    while True:
        stem = rng.choice(family.stems.split())
        if rng.random() < 1 / 12:
            stem = f"{rng.choice(WORDS)}_{rng.choice(WORDS)}"
        function = rng.choice(PREFIXES) + stem + rng.choice(SUFFIXES)
        if is_held_out(function) == (split == "held_out"):
            return function


def draw_holes(rng: Random, family: Family, function: str, style: str | None) -> dict[str, str]:
    """Choose every name, constant and rule of one task."""
    holes = {"function": function}
    used: set[str] = set()
    for key, names in zip("abc", family.parameters, strict=False):
        holes[key] = rng.choice([name for name in names.split() if name not in used])
        used.add(holes[key])
    for key, names in family.names.items():
        free = sorted((name for name in names.split() if name not in used), key=len)
        # Without a style the length of the function's name decides, so that the prompt tells.
        short = style == "short" or (style is None and len(function) % 2 == 0)
        holes[key] = free[0] if short else free[-1]
        used.add(holes[key])
    for key, (low, high) in family.constants.items():
        holes[key] = str(rng.randint(low, high))
    for key, rules in family.rules.items():
        rule = rng.choice(rules)
        holes[f"{key}_words"] = Template(rule.words).substitute(holes)
        holes[f"{key}_code"] = Template(rule.code).substitute(holes)
    parameters = ", ".join(holes[key] for key, _ in zip("abc", family.parameters, strict=False))
    holes["signature"] = f"{function}({parameters})"
    holes["says"] = Template(rng.choice(family.says)).substitute(holes)
    plain = holes["says"].replace("`", "")
    holes["Says"] = plain[0].upper() + plain[1:]
    holes["plan"] = Template(family.plan).substitute(holes)
    holes["edge"] = Template(family.edge).substitute(holes)
    return holes


def draw_task(rng: Random, split: Split, family: str | None = None) -> Task:
    """Draw one task.

    Args:
        rng: the only source of randomness.
        split: whose function names and wordings to use.
        family: its name; None draws one.
    """
    chosen = FAMILIES[family or rng.choice(sorted(FAMILIES))]
    function = draw_function(rng, chosen, split)
    style = rng.choice(["short", "long", None, None])
    holes = draw_holes(rng, chosen, function, style)
    body = Template(chosen.body.strip("\n")).substitute(holes)
    code = f"def {holes['signature']}:\n{body}"
    arguments = chosen.arguments(rng)
    holes["call"] = f"{function}({', '.join(map(repr, arguments))})"
    holes["result"] = repr(evaluate(code, function, arguments))

    def say(templates: tuple[str, ...]) -> str:
        return Template(rng.choice(templates)).substitute(holes)

    with_example, with_docstring = rng.random() < 0.6, rng.random() < 0.4
    prompt = say(ASKS[split])
    hints = [say(EXAMPLES)] if with_example else []
    hints += [say(DOCSTRINGS)] if with_docstring else []
    hints += [say(STYLES[style])] if style else []
    if hints:
        prompt += ("" if prompt.endswith("\n") else " ") + " ".join(hints)
    if with_docstring:
        code = f'def {holes["signature"]}:\n    """{holes["Says"]}."""\n{body}'
    lines = code.split("\n")
    cut = "\n".join(lines[: max(2, min(len(lines) - 1, 2 + len(lines) // 3))])
    thought = f"{say(RESTATES)} {say(PLANS)} Edge case: {holes['edge']}."
    thought += say(CHECKS) if with_example else ""
    thought += f" Draft:\n```python\n{cut}\n    ...\n```\n{say(CLOSES)}"
    answer = f"{say(OPENS)}\n\n```python\n{code}\n```\n\n"
    answer += f"It works like this: {holes['plan']}. Note that {holes['edge']}."
    answer += f" With the example, `{holes['call']}` returns `{holes['result']}`." if with_example else ""
    return Task(chosen.name, function, prompt.strip(), thought, answer, code)


def draw_calls(family: str, rng: Random, most: int) -> tuple[tuple[Any, ...], ...]:
    """Draw the calls that a solution is tested on: the family's edge cases and then random ones.

    Args:
        family: its name.
        rng: the only source of randomness.
        most: how many calls; fewer when the draws repeat each other.
    """
    calls = list(FAMILIES[family].edges)
    for _ in range(4 * most):
        arguments = FAMILIES[family].arguments(rng)
        if len(calls) < most and arguments not in calls:
            calls.append(arguments)
    return tuple(calls[:most])
