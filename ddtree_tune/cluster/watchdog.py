"""Notices that no trial can start: Tune itself would wait for ever and say nothing.

A trial that waits while others run is a full cluster. One that waits while none runs has no node:
that is said within a minute, repeated, and after a limit it ends the sweep, which can be resumed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a sweep waits for a node, in seconds."""

    say_s: float = 30.0
    """Before the first word, which is longer than a trial's actor takes to start."""
    repeat_s: float = 60.0
    """Between words."""
    limit_s: float = 1800.0
    """Before the sweep ends: machines of a cloud take a quarter of an hour to come up."""


@dataclass
class Watchdog:
    """Follows whether trials run; one instance on the driver."""

    say: Callable[[str], None]
    patience: Patience = Patience()
    now_s: Callable[[], float] = field(default=time.monotonic, kw_only=True)

    def __post_init__(self) -> None:
        self._since: float | None = None
        self._said: float | None = None

    def look(self, obstacle: str | None) -> str | None:
        """Take in why no trial runs; None while one does.

        Returns:
            The sentence to end the sweep with, once patience is used up.
        """
        if obstacle is None:
            if self._said is not None:
                self.say("a trial runs again")
            self._since = self._said = None
            return None
        now = self.now_s()
        self._since = now if self._since is None else self._since
        waited = now - self._since
        limit = self.patience.limit_s
        if waited >= limit:
            return f"a trial must get a node within {limit / 60:.3g} min, but got none: {obstacle}"
        due = self._since + self.patience.say_s if self._said is None else self._said + self.patience.repeat_s
        if now >= due:
            self._said = now
            self.say(f"waiting for {waited:.0f} s: {obstacle}; the sweep ends after {limit / 60:.3g} min of that")
        return None
