"""Tune's own account of a sweep, for those who analyse with Tune: ``Tuner.restore(folder, TuneTrial)``.

Our tables are the record; this is a view of the same trials. It lies apart while the sweep runs and is
kept when it ends in order, a folder for each time that the sweep was driven.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ray.tune.logger import JsonLoggerCallback

from ddtree_tune.cluster.trial import EVENT, PROPOSAL
from ddtree_tune.core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from ray.tune.experiment import Trial

    from ddtree_tune.node.progress import Progress
    from ddtree_tune.node.store import Store

FOLDER = "tune"
"""In the results."""


class Numbers(JsonLoggerCallback):
    """Writes the numbers of every step where Tune's analysis looks for them; objects stay out."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Write one step."""
        plain = {name: value for name, value in result.items() if name != EVENT}
        super().log_trial_result(iteration, trial, plain | {"config": _plain(result.get("config", {}))})

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Leave out the last step's objects, which the searcher has taken by now: they are in our tables."""
        super().log_trial_end(trial, failed)
        trial.run_metadata.last_result.pop(EVENT, None)
        trial.run_metadata.invalidate_cache()

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        """Write what a trial asks for."""
        super().update_config(trial, _plain(config))


def keep(experiment: Path, store: Store, progress: Progress) -> None:
    """Keep an experiment that has ended; without room for it the sweep is as good.

    Args:
        experiment: Tune's folder.
        store: the results folder.
        progress: what is told of it.
    """
    if not any(experiment.glob("trial-*")):
        return  # nothing was left to run
    try:
        store.write_folder(f"{FOLDER}/{datetime.now(UTC):%Y%m%d-%H%M%S}", experiment)
    except StoreError as error:
        progress.say(f"Tune's own experiment is not kept: {error}")


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != PROPOSAL}
