"""A Tune trial: tells the story of ``ddtree_tune.trial`` one event per step.

The server starts in the first step, not in ``setup``: Tune asks for the next trial only when
``setup`` has returned, so a slow start there would make trials on different nodes wait for each
other.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ray import tune

from ddtree_tune.cluster.actors import RemoteGrader, RemoteLoader, RemoteSink
from ddtree_tune.cluster.placement import this_node
from ddtree_tune.cluster.serve import EngineApp, ServedEngine
from ddtree_tune.core.errors import EngineError, FailureClass, StoreError
from ddtree_tune.core.stats import geometric_mean
from ddtree_tune.node.engine import refuse_faked
from ddtree_tune.node.fingerprint import ThisNode
from ddtree_tune.node.gpus import GpuWatch
from ddtree_tune.node.sockets import wait_free
from ddtree_tune.trial import TrialEvent, World, run_trial

if TYPE_CHECKING:
    from collections.abc import Generator

    from ray.actor import ActorHandle

    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.record import Proposal, TrialRecord
    from ddtree_tune.core.spec import SweepSpec

EVENT = "event"
"""Key of a step's TrialEvent in its Tune result."""
UNKEPT = "unkept"
"""Key of why a trial's record could not be kept: without results there is no sweep."""
HOLD_S = 3.0
"""Between two looks at a node that is quarantined."""
PROPOSAL = "proposal"
"""Key of a trial's Proposal in its Tune configuration."""


def _dirt(gpus: GpuWatch, left: TrialRecord) -> str | None:
    """Why a node is not free for the next trial; None if it is."""
    try:
        gpus.refuse_taken()
        if left.plan is not None:
            wait_free((left.plan.port, *left.plan.further_ports), 0.0, left.plan.host)
        refuse_faked(dict(os.environ))
    except EngineError as error:
        return error.message
    return None


def _numbers(event: TrialEvent) -> dict[str, Any]:
    """What Tune's own analysis can tell of an event; a trial's last holds the mean of its cells."""
    cell, rate, record = event.cell, event.pass_rate, event.record
    if cell is not None:
        names = ("cell_id", "context", "concurrency", "output_tps", "user_tps", "accept_len")
        return {name: getattr(cell, name) for name in names}
    if rate is not None:
        return {"pass_rate": rate.over_all}
    if record is None:
        return {}
    scored = [tps for one in record.cells if one.metrics.scored and (tps := one.metrics.output_tps) is not None]
    return {
        "status": record.status.value,
        "seconds": record.seconds,
        "output_tps": geometric_mean(scored) if scored else None,
        "pass_rate": record.pass_rate.over_all if record.pass_rate else None,
    }


class TuneTrial(tune.Trainable):
    """One configuration on one exclusive node. The process is reused for the node's next trial."""

    def setup(self, config: dict[str, Any], *, spec: SweepSpec, dialect: Dialect, store: ActorHandle[Any]) -> None:
        """Make the actors and the Serve application that serve every trial of this process."""
        self._spec = spec
        self._dialect = dialect
        place = f"{this_node()[:8]}-{id(self):x}"
        stall_s = spec.engine.stall_s
        seed, served = spec.search.seed, max(spec.load.concurrency)
        load_on = spec.cluster.load_on
        self._loader = RemoteLoader(spec.load, seed=seed, stall_s=stall_s, name=f"load-{place}", load_on=load_on)
        self._grader = (
            RemoteGrader(spec.coding, served=served, seed=seed, stall_s=stall_s, name=f"grade-{place}", load_on=load_on)
            if spec.coding
            else None
        )
        self._sink = RemoteSink(store)
        self._gpus = GpuWatch(env=spec.engine.env, release_s=spec.engine.release_s)
        self._app = EngineApp(spec, dialect, name=f"{id(self):x}")
        self._story = self._begin(config[PROPOSAL])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial in the same process."""
        self._story = self._begin(new_config[PROPOSAL])
        return True

    def step(self) -> dict[str, Any]:
        """Tell the next event. A trial that leaves a dirty node holds it until it is clean."""
        if self._left is not None:
            return self._hold(self._left)
        try:
            event = next(self._story)
        except StoreError as error:
            return {EVENT: TrialEvent("end"), UNKEPT: str(error), "stage": "end", "done": True}
        record = event.record
        if record is None:
            return {EVENT: event, "stage": event.stage, "done": False, **_numbers(event)}
        if record.failure is not None and record.failure.failure is FailureClass.DIRTY_NODE:
            self._left = record
        cells = tuple(replace(cell, runs=()) for cell in record.cells)  # the raw requests are on disk
        event = replace(event, record=replace(record, cells=cells, log=""))
        return {EVENT: event, "stage": event.stage, "done": self._left is None, **_numbers(event)}

    def _hold(self, left: TrialRecord) -> dict[str, Any]:
        """Keep the node from other trials while what one left is still there."""
        time.sleep(HOLD_S)
        reason = _dirt(self._gpus, left)
        if reason is None:
            self._left = None
        return {EVENT: TrialEvent("quarantine", quarantine=reason), "stage": "quarantine", "done": reason is None}

    def cleanup(self) -> None:
        """End the story where it is: the server stops, the record is kept, the application goes."""
        with suppress(StoreError):  # the server is stopped by then; the driver has seen the same error
            self._story.close()
        self._app.delete()
        self._gpus.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing to save: the results folder is the state."""

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing to load, see ``save_checkpoint``."""

    _left: TrialRecord | None = None
    """The record of a trial that left this node dirty."""

    def _begin(self, proposal: Proposal) -> Generator[TrialEvent, None, None]:
        engine = ServedEngine(self._app, name=f"trial-{proposal.trial_id}")
        world = World(engine, self._loader, self._grader, ThisNode(), self._sink, self._gpus)
        return run_trial(self._spec, self._dialect, proposal, world)
