"""One sweep as a Tune experiment: nodes for the study's proposals, until it has no more."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from ray import tune

from ddtree_tune.cluster.actors import store_actor
from ddtree_tune.cluster.placement import connected, trial_resources
from ddtree_tune.cluster.search import StudySearcher
from ddtree_tune.cluster.trial import EVENT, PROPOSAL, TuneTrial

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.node.progress import Progress
    from ddtree_tune.node.search import Study
    from ddtree_tune.node.store import Store


class _Narrator(tune.Callback):
    """Passes events to the progress display."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __getstate__(self) -> dict[str, Any]:
        """Stay out of Tune's snapshots: a display belongs to the process that shows it."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._progress.started(trial.config[PROPOSAL])

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self._progress.happened(trial.config[PROPOSAL], result[EVENT])


def run_sweep(spec: SweepSpec, dialect: Dialect, study: Study, store: Store, progress: Progress) -> None:
    """Run trials until the study has no more, or the sweep is interrupted.

    Everything that matters is in the store when a trial ends; nothing is returned.
    """
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # its tables and banner; ours is the only voice
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # our tables hold what those would write
    with connected() as nodes:
        # Tune ends an experiment in order on SIGUSR1, as on Ctrl-C; `ray job stop` sends SIGTERM.
        signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGUSR1))
        progress.nodes(nodes)
        trainable = tune.with_parameters(TuneTrial, spec=spec, dialect=dialect, store=store_actor(store))
        tune.Tuner(
            tune.with_resources(trainable, trial_resources()),
            tune_config=tune.TuneConfig(
                search_alg=StudySearcher(study),
                num_samples=-1,
                max_concurrent_trials=nodes,
                reuse_actors=True,
                trial_name_creator=_trial_name,
                trial_dirname_creator=_trial_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=store.root,
                verbose=0,
                callbacks=[_Narrator(progress)],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()


def _trial_name(trial: Trial) -> str:
    proposal = trial.config.get(PROPOSAL)
    return f"trial-{proposal.trial_id}" if proposal else trial.trial_id
