"""The row of a trial whose process died: nobody else is left to write it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ray.exceptions import RayActorError

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import Failure, Span, TrialRecord, TrialStatus

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from ddtree_tune.core.record import Proposal
    from ddtree_tune.node.store import Store

_TOLD = "stage"
"""Key of the stage in a trial's Tune result."""


def lost_record(
    store: Store, sweep: str, proposal: Proposal, trial: Trial, *, started_utc: str, held_s: float
) -> TrialRecord:
    """Keep what a lost trial left, as a row with its failure; one that had ended stays as it is.

    Args:
        store: of the sweep.
        sweep: its name.
        proposal: what was tried.
        trial: Tune's, in error.
        started_utc: when it got its node.
        held_s: how long it held it.

    Raises:
        StoreError: the row cannot be read or written.
    """
    left = store.read_record(proposal.trial_id)
    if left is None:
        left = TrialRecord(sweep, proposal, TrialStatus.FAILED, started_utc, node="", spans=())
    elif left.measured or left.failure is not None:
        return left  # it died between its row and the word of it
    stage = str((trial.last_result or {}).get(_TOLD, "launch"))
    spans = (*left.spans, Span("lost", max(0.0, held_s - left.seconds)))
    record = replace(left, failure=_failure(trial, stage), spans=spans)
    store.write(record)
    return record


def _failure(trial: Trial, stage: str) -> Failure:
    """The machine's, unless the process lived and raised: then it is a defect of ours."""
    error = pickle.loads(Path(trial.pickled_error_file).read_bytes())  # noqa: S301 - this process pickled it
    if isinstance(error, RayActorError):
        reason = f"the trial's process must live until its end, but it is gone: {type(error).__name__}"
        return Failure(FailureClass.NODE_LOST, stage, reason, "")
    return Failure(FailureClass.INTERNAL, stage, "the trial's process raised, see the log tail", str(error))
