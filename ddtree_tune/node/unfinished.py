"""Trials that a killed sweep left open get their reason when it goes on: nobody else was left to write it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import Failure

if TYPE_CHECKING:
    from ddtree_tune.node.store import Store

REASON = "the sweep's driver must live until the trial's end, but was gone; the trial is tried again"


def close_unfinished(store: Store) -> None:
    """Say of every trial that neither ended nor failed that it was interrupted; what it measured stays.

    Args:
        store: of a sweep that nobody drives now.

    Raises:
        StoreError: a row cannot be read or written.
    """
    for record in store.read_records():
        if record.measured or record.failure is not None:
            continue
        whole = store.read_record(record.trial_id)
        if whole is not None:
            stage = whole.spans[-1].stage if whole.spans else "launch"
            store.write(replace(whole, failure=Failure(FailureClass.INTERRUPTED, stage, REASON, "")))
