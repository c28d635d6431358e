"""What the checks found, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.sglang.prompts import CHECK, read
from benchmarks.sglang.rows import Compared, Constrained, Drawn, Refused
from benchmarks.sglang.settings import CHAIN, CHAIN_STEPS
from benchmarks.sglang.table import place, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.sglang.rows import Kept

_TIE = 1e-6
"""Nats below which two tokens are tied."""
_MODES = {"alone": "one by one", "crowd": "16 at once", "mixed": "beside sampled", "long": "long, twice"}


def checks(kept: Kept) -> Iterator[str]:
    """The tables, each with its heading."""
    compared = sorted(
        kept.of(Compared), key=lambda one: (place(one.setting), one.setting, list(_MODES).index(one.mode))
    )
    if compared:
        yield "\n### Greedy text by its first difference\n"
        head = ("setting", "asked", "equal", "differ in a tie", "differ otherwise", "largest gap", "from the cache")
        yield from table(head, (_compared(one) for one in compared))
        yield "\n### Acceptance against the reference, short questions\n"
        yield from table(("setting", "asked", "tokens per step", "reference", "ratio"), _accepted(compared))
    if drawn := kept.of(Drawn):
        yield "\n### Sampled text against no speculation's\n"
        rows = ([one.setting, str(one.draws), str(one.cells), f"{one.chi_square:.1f}"] for one in drawn)
        yield from table(("setting", "draws of each", "texts", "chi-square"), rows)
    if constrained := kept.of(Constrained):
        yield "\n### Under a regular expression\n"
        rows = ([one.setting, f"`{one.pattern}`", f"`{one.text}`"] for one in constrained)
        yield from table(("setting", "pattern", "reply"), rows)
    if refused := kept.of(Refused):
        yield "\n### What must not start\n"
        rows = ([one.setting, f"`{one.error}`" if one.error else "it served"] for one in refused)
        yield from table(("setting", "last line"), rows)


def _compared(one: Compared) -> list[str]:
    gaps = [abs(nats) for *_, nats in one.differences if nats is not None]
    ties = sum(gap < _TIE for gap in gaps)
    cached = "" if one.cached is None else ", ".join(map(str, one.cached))
    equal = f"{one.replies - len(one.differences)} of {one.replies}"
    largest = f"{max(gaps):.4f}" if gaps else ""
    return [one.setting, _MODES[one.mode], equal, str(ties), str(len(one.differences) - ties), largest, cached]


def _accepted(compared: list[Compared]) -> Iterator[list[str]]:
    """Tokens per verify step, the first token counted, against the replay of the same prompts in float32."""
    prompts = [prompt for prompt in read(file=CHECK) if prompt.reply]
    for one in compared:
        key = CHAIN_STEPS if one.setting == CHAIN.name else one.setting.removesuffix(" timed").removesuffix(" eager")
        if one.tokens_per_step is None or one.replies != len(prompts) or key not in prompts[0].steps:
            continue
        known = sum(len(prompt.reply) for prompt in prompts) / sum(prompt.steps[key] for prompt in prompts)
        seen = one.tokens_per_step
        yield [one.setting, _MODES[one.mode], f"{seen:.3f}", f"{known:.3f}", f"{seen / known:.3f}"]
