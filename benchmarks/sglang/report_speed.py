"""Speeds as tables: the best tree for each number of users, every tree on a grid, and everything at length."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.sglang.rows import Speed
from benchmarks.sglang.settings import BUDGETS, CHAIN, NONE, TOPKS, TREES
from benchmarks.sglang.table import place, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.sglang.rows import Kept

_TREES = {setting.name for setting in TREES}


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat of one cell, against the baselines of the same round on the same GPU."""

    setting: str
    users: int
    tps: float
    of_none: float | None
    of_chain: float | None
    accept: float | None
    step_ms: float | None
    """Of one step, prefills included: a step gives every request in flight its tokens. None where nobody knows how
    many those are."""
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """All repeats of one setting at one number of users."""

    setting: str
    users: int
    repeats: tuple[Repeat, ...]

    def ratios(self, than: str) -> list[float]:
        """Over no speculation (``of_none``) or the chain (``of_chain``), where the round had it."""
        return [ratio for one in self.repeats if (ratio := getattr(one, than)) is not None]


def repeats(kept: Kept) -> list[Repeat]:
    """Every repeat that gave a rate, but for those of servers that write down their steps."""
    found = []
    for run in kept.runs():
        speeds = [one for one in run.of(Speed) if one.metrics["output_tps"] and "timed" not in one.setting]
        rate = {(one.setting, one.gpu, one.turn, one.concurrency): one.metrics["output_tps"] for one in speeds}
        for one in speeds:
            tps, accept = one.metrics["output_tps"], one.metrics["accept_len"] or None
            tokens = 1.0 if one.setting == NONE.name else accept
            none, chain = (rate.get((base.name, one.gpu, one.turn, one.concurrency)) for base in (NONE, CHAIN))
            found.append(
                Repeat(
                    one.setting,
                    one.concurrency,
                    tps,
                    tps / none if none else None,
                    tps / chain if chain else None,
                    accept,
                    1e3 * tokens * one.metrics["in_flight_mean"] / tps if tokens else None,
                    tuple(one.metrics["flags"]),
                )
            )
    return found


def cells(kept: Kept) -> list[Cell]:
    """The repeats together, by number of users and then in the order of settings."""
    groups: dict[tuple[str, int], list[Repeat]] = {}
    for one in repeats(kept):
        groups.setdefault((one.setting, one.users), []).append(one)
    found = [Cell(setting, users, tuple(some)) for (setting, users), some in groups.items()]
    return sorted(found, key=lambda cell: (cell.users, place(cell.setting), cell.setting))


def speed(kept: Kept) -> Iterator[str]:
    """All tables, each with its heading."""
    measured = cells(kept)
    users = sorted({cell.users for cell in measured})
    by_users = {number: [cell for cell in measured if cell.users == number] for number in users}
    yield from _best(by_users)
    yield from _grids(by_users)
    for number, some in by_users.items():
        yield f"\n### {number} at once\n"
        head = ("setting", "tok/s", "from to", "repeats", "of none", "of chain", "tokens per step", "ms per step")
        yield from table((*head, "flags"), (_row(cell) for cell in some))


def _best(by_users: dict[int, list[Cell]]) -> Iterator[str]:
    """The tree with the highest ratio to the chain, and the baselines beside it."""
    rows = []
    for users, some in by_users.items():
        best = max(_trees(some), key=lambda cell: median(cell.ratios("of_chain")), default=None)
        for cell in ([best] if best else []) + [cell for cell in some if cell.setting in {NONE.name, CHAIN.name}]:
            first = f"**{cell.setting}**" if cell is best else cell.setting
            tps = [one.tps for one in cell.repeats]
            rows.append(
                [
                    *(str(users), first, _span(tps, 0), _span(cell.ratios("of_none"), 2)),
                    *(_span(cell.ratios("of_chain"), 2), _middle([one.accept for one in cell.repeats], 2)),
                    _middle([one.step_ms for one in cell.repeats], 1),
                ]
            )
    if rows:
        yield "\n### The best tree for each number of users\n"
        head = ("at once", "setting", "tok/s", "of none", "of chain", "tokens per step", "ms per step")
        yield from table(head, rows)


def _grids(by_users: dict[int, list[Cell]]) -> Iterator[str]:
    """Every tree's ratio to the chain, budgets down and topks across."""
    trees = [cell for some in by_users.values() for cell in _trees(some)]
    if not trees:
        return
    yield "\n### Trees against the chain\n"
    spreads = [max(ratios) / min(ratios) for cell in trees if len(ratios := cell.ratios("of_chain")) > 1]
    yield (
        f"Medians over rounds. The repeats of one tree lie {100 * (median(spreads) - 1):.0f} % apart in the median, "
        f"{100 * (max(spreads) - 1):.0f} % at most."
        if spreads
        else "No tree was held against the chain twice: nothing says how far repeats lie apart."
    )
    for users, some in by_users.items():
        ratio = {cell.setting: median(cell.ratios("of_chain")) for cell in _trees(some)}
        if not ratio:
            continue
        best = max(ratio, key=ratio.__getitem__)
        rows = []
        for budget in BUDGETS:
            names = [f"{budget}/{topk}" for topk in TOPKS]
            values = ["" if name not in ratio else f"{ratio[name]:.2f}" for name in names]
            if any(values):
                rows.append(
                    [
                        str(budget),
                        *(f"**{one}**" if name == best else one for name, one in zip(names, values, strict=True)),
                    ]
                )
        yield ""
        yield from table((f"{users} at once", *(f"topk {topk}" for topk in TOPKS)), rows)


def _trees(some: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in some if cell.setting in _TREES and cell.ratios("of_chain")]


def _row(cell: Cell) -> list[str]:
    tps = [one.tps for one in cell.repeats]
    flags = sorted({flag for one in cell.repeats for flag in one.flags})
    return [
        *(cell.setting, f"{median(tps):.0f}", f"{min(tps):.0f} to {max(tps):.0f}", str(len(tps))),
        *(_middle(cell.ratios(than), 2) for than in ("of_none", "of_chain")),
        *(_middle([one.accept for one in cell.repeats], 2), _middle([one.step_ms for one in cell.repeats], 2)),
        ", ".join(flags),
    ]  # fmt: skip


def _middle(values: Sequence[float | None], places: int) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.{places}f}" if known else ""


def _span(values: Sequence[float], places: int) -> str:
    """Median, and from where to where where there are several."""
    if len(values) < 2:
        return _middle(values, places)
    return f"{median(values):.{places}f} ({min(values):.{places}f} to {max(values):.{places}f})"
