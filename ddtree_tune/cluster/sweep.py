"""One sweep as a Tune experiment: nodes for the study's proposals, until it has no more."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.experiment import Trial

from ddtree_tune.cluster.actors import store_actor
from ddtree_tune.cluster.gauges import Gauges
from ddtree_tune.cluster.joining import connected
from ddtree_tune.cluster.kept import FOLDER, Numbers, keep
from ddtree_tune.cluster.lost import lost_record
from ddtree_tune.cluster.placement import live_nodes
from ddtree_tune.cluster.room import Room, trial_bundles
from ddtree_tune.cluster.search import StudySearcher
from ddtree_tune.cluster.serve import delete_stranded
from ddtree_tune.cluster.trial import EVENT, PROPOSAL, UNKEPT, TuneTrial
from ddtree_tune.cluster.watchdog import Patience, Watchdog
from ddtree_tune.core.errors import PlacementError, StoreError
from ddtree_tune.trial import TrialEvent

if TYPE_CHECKING:
    from ddtree_tune.core.cluster_spec import LoadOn
    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.node.progress import Progress
    from ddtree_tune.node.search import Study
    from ddtree_tune.node.store import Store

PATIENCE = Patience()
"""With a cluster that has no node for a trial."""
QUARANTINE = "quarantine"
"""Stage of the events of a trial that is over and holds its node."""
LOOK_PERIOD_S = 2.0
"""Between two counts of the nodes."""


class _Driver(tune.Callback):
    """Passes events to the display and the gauges, and keeps the searcher's number of nodes."""

    def __init__(self, sweep: str, store: Store, progress: Progress, searcher: StudySearcher, load_on: LoadOn) -> None:
        self._sweep = sweep
        self._load_on = load_on
        self._store = store
        self._progress = progress
        self._gauges = Gauges(sweep, len(progress.records))
        self._searcher = searcher
        self._watchdog = Watchdog(progress.say, PATIENCE)
        self._nodes = searcher.nodes
        self._live: frozenset[str] = frozenset()
        """Ids of the nodes."""
        self._looked_s = time.monotonic()
        self._begun: dict[str, tuple[str, float]] = {}
        """When each trial got its node: in UTC, and by the clock of ``_looked_s``."""
        self._quarantined: dict[str, str] = {}
        """Why, by the trial that holds the node."""
        self.broken: PlacementError | StoreError | None = None
        """Why the sweep could not go on."""

    def __getstate__(self) -> dict[str, Any]:
        """Stay out of Tune's snapshots: a display belongs to the process that shows it."""
        return {}

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        passed_s = time.monotonic() - self._looked_s
        if passed_s < LOOK_PERIOD_S or self.broken is not None:
            return
        self._looked_s += passed_s
        try:
            self._look(passed_s, [trial.status for trial in trials])
        except PlacementError as error:
            self._break(error)
        held = len(self._quarantined)
        if held > 0 and self._searcher.done and sum(not trial.is_finished() for trial in trials) == held:
            _end_in_order()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._begun[trial.trial_id] = _utc(), time.monotonic()
        self._progress.started(trial.config[PROPOSAL])

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        if UNKEPT in result:
            self._break(StoreError(result[UNKEPT]))
            return
        if result[EVENT].stage == QUARANTINE:
            self._hold(trial, result[EVENT].quarantine)
            return
        self._progress.happened(trial.config[PROPOSAL], result[EVENT], result.get("hostname"))
        self._gauges.happened(trial.config[PROPOSAL], result[EVENT])
        if result[EVENT].record is not None:
            self._gauges.ended(self._progress.records)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        proposal = trial.config[PROPOSAL]
        started_utc, since_s = self._begun.pop(trial.trial_id, (_utc(), time.monotonic()))
        held_s = time.monotonic() - since_s
        self._quarantined.pop(trial.trial_id, None)
        if trial.trial_id not in self._searcher.asked:
            return  # it was over, and held its node
        try:
            record = lost_record(self._store, self._sweep, proposal, trial, started_utc=started_utc, held_s=held_s)
        except StoreError as error:
            self._break(error)
            return
        self._searcher.lost(trial.trial_id, record)
        event = TrialEvent("end", record=record)
        self._progress.happened(proposal, event)
        self._gauges.happened(proposal, event)
        self._gauges.ended(self._progress.records)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        self._gauges.close()

    def _break(self, error: PlacementError | StoreError) -> None:
        """End the sweep; the first reason is the one to tell."""
        if self.broken is None:
            self.broken = error
            _end_in_order()

    def _hold(self, trial: Trial, reason: str | None) -> None:
        """A node is held back, or free again."""
        where = f"the node of {trial.config[PROPOSAL].trial_id}"
        if reason is None:
            self._progress.say(f"{where} is clean again")
            self._quarantined.pop(trial.trial_id, None)
        elif trial.trial_id not in self._quarantined:
            self._progress.say(f"{where} is quarantined, and gets no trial until it is clean: {reason}")
            self._quarantined[trial.trial_id] = reason

    def _look(self, passed_s: float, statuses: list[str]) -> None:
        live = live_nodes()
        room = Room.of(list(live.values()), self._load_on)
        nodes = room.trials
        if live.keys() != self._live:
            self._live = frozenset(live)
            delete_stranded(live)
        if nodes != self._nodes:
            self._progress.nodes(nodes)
        held = len(self._quarantined)
        self._nodes, self._searcher.nodes = nodes, nodes - held
        running, pending = statuses.count(Trial.RUNNING) - held, statuses.count(Trial.PENDING)
        self._gauges.tick(nodes, passed_s)
        self._gauges.trials(running, pending)
        why = f"{held} of {nodes} quarantined: {next(iter(self._quarantined.values()))}" if held else room.obstacle()
        given_up = self._watchdog.look(why if pending and not running else None)
        if given_up is not None:
            raise PlacementError(given_up)


def run_sweep(
    spec: SweepSpec,
    dialect: Dialect,
    study: Study,
    store: Store,
    progress: Progress,
) -> None:
    """Run trials until the study has no more, or the sweep is interrupted.

    Everything that matters is in the store when a trial ends; nothing is returned.

    Raises:
        PlacementError: no trial got a node for as long as PATIENCE allows.
        StoreError: a record could not be kept.
    """
    if study.done:
        return  # a sweep that is complete needs no Ray to say so
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # its tables and banner; ours is the only voice
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # our tables hold what those would write
    # The searcher knows how many nodes are up; a limit of Tune's own is fixed when the sweep starts.
    os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", "1000")
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # tracebacks of trials that our lines tell of
    with connected(spec.cluster.load_on) as nodes:
        # Tune ends an experiment in order on SIGUSR1, as on Ctrl-C; `ray job stop` sends SIGTERM.
        signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGUSR1))
        progress.nodes(nodes)
        searcher = StudySearcher(study, nodes)
        driver = _Driver(spec.name, store, progress, searcher, spec.cluster.load_on)
        parametrised = tune.with_parameters(TuneTrial, spec=spec, dialect=dialect, store=store_actor(store))
        room = Room.of(list(live_nodes().values()), spec.cluster.load_on)
        bundles, strategy = trial_bundles(spec.cluster.load_on, room.gpus_held(spec.cluster.gpus))
        trainable = tune.with_resources(parametrised, tune.PlacementGroupFactory(bundles, strategy=strategy))
        trainable.__qualname__ = TuneTrial.__name__  # what the dashboard calls its actors
        # Tune's own state lies apart until all is over. Beside the results it would share their full disk,
        # and its folder would be made anew where theirs has vanished.
        with tempfile.TemporaryDirectory(prefix="ddtree-tune-", ignore_cleanup_errors=True) as scratch:
            tune.Tuner(
                trainable,
                tune_config=tune.TuneConfig(
                    search_alg=searcher,
                    num_samples=-1,
                    reuse_actors=True,
                    trial_name_creator=_trial_name,
                    trial_dirname_creator=_trial_name,
                ),
                run_config=tune.RunConfig(
                    name=FOLDER,
                    storage_path=scratch,
                    verbose=0,
                    callbacks=[driver, Numbers()],
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            ).fit()
            if driver.broken is None:
                keep(Path(scratch) / FOLDER, store, progress)
    if driver.broken is not None:
        kept = f"What is complete is kept; go on with: ddtree-tune resume {store.root}"
        raise type(driver.broken)(f"{driver.broken}. {kept}")


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _end_in_order() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)  # Tune's way


def _trial_name(trial: Trial) -> str:
    proposal = trial.config.get(PROPOSAL)
    return f"trial-{proposal.trial_id}" if proposal else trial.trial_id
