"""Two configurations on the same problems: how the verdicts differ, and how sure that is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import NOT_ATTEMPTED, Outcome, latest, served
from ddtree_tune.core.stats import Interval, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddtree_tune.core.coding import Attempt


@dataclass(frozen=True, slots=True)
class Paired:
    """Two configurations on the same problems."""

    both: int
    only_first: int
    """Problems that only the first one passed."""
    only_second: int
    neither: int

    @property
    def total(self) -> int:
        """Problems that both were graded on."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def agree(self) -> int:
        """Problems with the same verdict."""
        return self.both + self.neither

    @property
    def discordant(self) -> int:
        """Problems with different verdicts: all that the test looks at."""
        return self.only_first + self.only_second

    @property
    def difference(self) -> float | None:
        """Second pass rate less the first; None without a common problem."""
        return (self.only_second - self.only_first) / self.total if self.total else None

    @property
    def interval(self) -> Interval | None:
        """95 % interval of ``difference``; None without a common problem.

        The Wilson intervals of the two rates squared and added, less what their correlation phi
        takes off: ``d - sqrt(a**2 - 2 * phi * a * b + b**2)`` with a and b the distances to the
        Wilson limits on the far sides, and likewise above. Phi is corrected for continuity where it
        is positive, and 0 where a margin of the table is empty.
        Source: Newcombe, Statistics in Medicine 17 (1998) 2635-2650, method 10.
        """
        if self.difference is None:
            return None
        n, first, second = self.total, self.both + self.only_first, self.both + self.only_second
        one, two, phi = wilson(first, n), wilson(second, n), self._correlation()
        below = _side(second / n - two.low, one.high - first / n, phi)
        above = _side(two.high - second / n, first / n - one.low, phi)
        return Interval(max(-1.0, self.difference - below), min(1.0, self.difference + above))

    def _correlation(self) -> float:
        first, second = self.both + self.only_first, self.both + self.only_second
        margins = first * (self.total - first) * second * (self.total - second)
        if not margins:
            return 0.0
        product = self.both * self.neither - self.only_first * self.only_second
        corrected = max(product - self.total / 2, 0.0) if product > 0 else product
        return corrected / math.sqrt(margins)

    @property
    def p_value(self) -> float:
        """Two-sided exact McNemar test of equal pass rates; 1.0 where the verdicts never differ.

        Twice the binomial tail of the rarer kind of discordant pair at one half, at most 1.
        Source: McNemar, Psychometrika 12 (1947) 153-157, with the exact binomial instead of chi-squared.
        """
        return min(1.0, 2 * binomial_tail(max(self.only_first, self.only_second), self.discordant))


def _side(mine: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, mine * mine - 2 * phi * mine * other + other * other))


def binomial_tail(at_least: int, of: int) -> float:
    """Chance of so many heads or more among fair coins."""
    return sum(comb(of, k) for k in range(at_least, of + 1)) / (1 << of)


def paired(first: Iterable[Attempt], second: Iterable[Attempt]) -> Paired:
    """Compare two evaluations on the problems that both of them graded, at the concurrency served.

    Samples of one problem are alike and would make the comparison look surer than it is, so a
    problem is one pair: passed if at least half of its samples did.
    """
    ours, theirs = (_by_problem(side) for side in (first, second))
    return pair_outcomes([(ours[problem], theirs[problem]) for problem in ours if problem in theirs])


def pair_outcomes(pairs: Iterable[tuple[Outcome, Outcome]]) -> Paired:
    """Compare outcomes of the same problems, as (first, second)."""
    counts = Counter((one is Outcome.PASS, other is Outcome.PASS) for one, other in pairs)
    return Paired(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


def _by_problem(attempts: Iterable[Attempt]) -> dict[str, Outcome]:
    """What became of each problem that was graded: a pass, or any outcome that is none."""
    found: dict[str, list[Outcome]] = {}
    for one in latest(served(attempts)):
        if one.outcome not in NOT_ATTEMPTED:
            found.setdefault(one.problem_id, []).append(one.outcome)
    return {
        problem: Outcome.PASS
        if 2 * outcomes.count(Outcome.PASS) >= len(outcomes)
        else next(outcome for outcome in outcomes if outcome is not Outcome.PASS)
        for problem, outcomes in found.items()
    }
