"""Numbers, settings and certainties as the page writes them; a dash is a number that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.tables import ABSENT

if TYPE_CHECKING:
    from ddtree_tune.core.engine import EngineConfig
    from ddtree_tune.core.record import TrialRecord


def digits(value: float | None, count: int = 2) -> str:
    """A number with so many digits behind the point."""
    return ABSENT if value is None else f"{value:.{count}f}"


def short_id(record: TrialRecord) -> str:
    """The number of a trial, as in ``0012``."""
    return record.trial_id.partition("-")[0]


def knobs(config: EngineConfig) -> dict[str, str]:
    """A configuration for the pointer: every knob, all of them text."""
    return {
        "setting": config.label,
        "budget": ABSENT if config.budget is None else str(config.budget),
        "topk": ABSENT if config.topk is None else str(config.topk),
        "window": "none" if config.window is None else str(config.window),
    }


def hours_text(seconds: float) -> str:
    """Node time in the unit that suits it."""
    return f"{seconds / 3600:.2f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
