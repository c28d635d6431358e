"""What became of the coding problems under each setting, beside no speculation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtree_tune.core.coding import PassRate, at_concurrencies, count_outcomes, latest, pass_at_ks, served
from ddtree_tune.core.divergence import Likeness, likeness
from ddtree_tune.core.paired import Paired, paired
from ddtree_tune.core.speedup import NO_SPECULATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddtree_tune.core.coding import Attempt
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord

SIGNIFICANT = 0.05
"""A difference that chance gives less often is one."""


@dataclass(frozen=True, slots=True)
class AtConcurrency:
    """The same problems asked with another number of requests in flight."""

    concurrency: int
    rate: PassRate


@dataclass(frozen=True, slots=True)
class CodingResult:
    """The coding evaluation of one setting over all its trials."""

    config: EngineConfig
    concurrency: int | None
    """Requests in flight of what follows; None if that is not known."""
    rate: PassRate
    """Over all attempts of all its trials."""
    pass_at_k: tuple[tuple[int, float], ...]
    """(k, pass@k) of its last trial, where problems have several samples."""
    others: tuple[AtConcurrency, ...]
    """The other concurrencies, the largest first."""
    paired: Paired | None
    """No speculation (first) and this (second) on the same problems; None for no speculation."""
    likeness: Likeness | None
    """Its greedy text beside no speculation's; None where there is none to compare."""

    def dropped(self, margin: float) -> bool:
        """Whether it passes fewer problems than no speculation, by more than chance or than allowed.

        Args:
            margin: share of the problems by which it may.
        """
        pair = self.paired
        if pair is None or pair.difference is None or pair.difference >= 0:
            return False
        return pair.p_value <= SIGNIFICANT or -pair.difference > margin

    def like(self, base: CodingResult) -> bool:
        """Whether nothing tells this setting from the base: outcomes, the problems passed, the greedy texts."""
        return (
            self.paired is not None
            and self.paired.discordant == 0
            and self.rate.outcomes == base.rate.outcomes
            and (self.others, self.pass_at_k) == (base.others, base.pass_at_k)
            and (self.likeness is None or self.likeness.earliest is None)
        )


def coding_results(records: Sequence[TrialRecord]) -> tuple[CodingResult, ...]:
    """The evaluation of each setting that has one, no speculation first and then in the order of asking."""
    configs = dict.fromkeys(record.config for record in records if record.attempts)
    ordered = sorted(configs, key=lambda config: config != NO_SPECULATION)
    plain = _attempts(records, NO_SPECULATION)
    return tuple(_result(config, records, plain) for config in ordered)


def _result(config: EngineConfig, records: Iterable[TrialRecord], plain: Sequence[Attempt]) -> CodingResult:
    mine = [record for record in records if record.config == config and record.attempts]
    attempts = _attempts(mine, config)
    at_served = [latest(served(record.attempts)) for record in mine]
    concurrency = at_served[-1][0].concurrency
    by_users = at_concurrencies(latest(attempts))
    others = sorted((users for users in by_users if users is not None and users != concurrency), reverse=True)
    compared = config != NO_SPECULATION and plain
    return CodingResult(
        config=config,
        concurrency=concurrency,
        rate=count_outcomes(one.outcome for trial in at_served for one in trial),
        pass_at_k=pass_at_ks(mine[-1].attempts),
        others=tuple(AtConcurrency(users, count_outcomes(one.outcome for one in by_users[users])) for users in others),
        paired=paired(plain, attempts) if compared else None,
        likeness=likeness(plain, attempts) if compared else None,
    )


def _attempts(records: Iterable[TrialRecord], config: EngineConfig) -> tuple[Attempt, ...]:
    return tuple(attempt for record in records if record.config == config for attempt in record.attempts)
