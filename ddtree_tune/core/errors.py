"""Every error this package raises, and how a failure is attributed.

TuneError
├── SpecError        the YAML or the command line is wrong: exit code 2, nothing started
├── EngineError      the engine process or its HTTP surface broke; carries a FailureClass
├── LoadError        the load generator could not do what the cell asks
├── GradeError       the grader or its sandbox misbehaved
├── StoreError       results could not be written or read
└── PlacementError   the cluster could not give what a trial needs

A sentence says what must hold, "but got" what, where, and what to do. Errors cross
process boundaries, so they take positional arguments only and pickle.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class FailureClass(StrEnum):
    """Why a trial did not complete: one word a search can learn from."""

    INVALID_CONFIG = "invalid_config"
    """The engine refused its flags."""
    STARTUP_CRASH = "startup_crash"
    """The process ended before it was ready, for a reason no other class names."""
    STARTUP_OOM = "startup_oom"
    """Memory ran out while loading or capturing graphs."""
    CAPTURE_CRASH = "capture_crash"
    """The process ended while it captured CUDA graphs."""
    STARTUP_TIMEOUT = "startup_timeout"
    """Not ready within the start-up deadline."""
    PORT_CONFLICT = "port_conflict"
    """Somebody else answered on the trial's port."""
    IDENTITY = "identity"
    """The server that answers is not the one that was launched."""
    NO_GENERATION = "ready_but_no_generation"
    """Ready by its own word, yet no right completion came within the deadline."""
    SILENT_OVERRIDE = "silent_override"
    """The effective configuration differs from the one asked."""
    SPEC_INERT = "spec_inert"
    """Speculation was asked for and accepts nothing, or was off and still drafts."""
    LOSSY = "lossy"
    """Greedy text differs from the baseline's and the spec makes that fatal."""
    DEGENERATE_OUTPUT = "degenerate_output"
    """The text repeats itself or is not text."""
    CRASH_REQUEST = "crash_request"
    """The process ended while it served requests."""
    OOM_RUNTIME = "oom_runtime"
    """Memory ran out while it served requests."""
    HANG = "hang_no_progress"
    """The process lives and no token came for too long."""
    DIRTY_NODE = "dirty_node"
    """The node did not come free: not the configuration's fault."""
    NODE_LOST = "node_lost"
    """The node or the process that held the engine went away."""
    LOAD = "load"
    """The load generator broke."""
    GRADE = "grade"
    """The grader broke."""
    INTERRUPTED = "interrupted"
    """The sweep was stopped while the trial ran."""
    INTERNAL = "internal"
    """A defect of this package: the log tail holds the traceback."""


class Blame(StrEnum):
    """Whose fault a failure is, which decides what is done about it."""

    CONFIGURATION = "configuration"
    """It would fail again: the search learns that it is infeasible."""
    NOBODY = "nobody"
    """It may have been chance: tried once more, and held against the configuration if it fails so again."""
    NODE = "node"
    """The machine's: tried again elsewhere, and the search learns nothing."""
    OURS = "ours"
    """This package's, or whoever stopped the sweep: tried again, and the search learns nothing."""


_BLAME = {
    FailureClass.STARTUP_CRASH: Blame.NOBODY,
    FailureClass.STARTUP_TIMEOUT: Blame.NOBODY,
    FailureClass.NO_GENERATION: Blame.NOBODY,
    FailureClass.CRASH_REQUEST: Blame.NOBODY,
    FailureClass.HANG: Blame.NOBODY,
    FailureClass.PORT_CONFLICT: Blame.NODE,
    FailureClass.IDENTITY: Blame.NODE,
    FailureClass.DIRTY_NODE: Blame.NODE,
    FailureClass.NODE_LOST: Blame.NODE,
    FailureClass.INTERRUPTED: Blame.OURS,
    FailureClass.INTERNAL: Blame.OURS,
    FailureClass.LOAD: Blame.OURS,
    FailureClass.GRADE: Blame.OURS,
}


def blame(failure: FailureClass) -> Blame:
    """Whose fault a failure is; the configuration's unless it can be somebody else's."""
    return _BLAME.get(failure, Blame.CONFIGURATION)


INFRASTRUCTURE = frozenset(one for one in FailureClass if blame(one) in {Blame.NODE, Blame.OURS})
"""Failures that say nothing about the configuration: a search must not learn from them."""


EXIT_INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, as shells have it."""


class TuneError(Exception):
    """Base of all errors of this package."""


class SpecError(TuneError, ValueError):
    """The YAML or the command line is wrong."""


class EngineError(TuneError):
    """The engine process or its HTTP surface broke."""

    def __init__(self, message: str, failure: FailureClass = FailureClass.INTERNAL) -> None:
        super().__init__(message, failure)
        self.message = message
        self.failure = failure

    def __str__(self) -> str:
        return self.message


class LoadError(TuneError):
    """The load generator could not do what the cell asks."""


class GradeError(TuneError):
    """The grader or its sandbox misbehaved."""


class StoreError(TuneError):
    """Results could not be written or read."""


class PlacementError(TuneError):
    """The cluster could not give what a trial needs."""


@contextmanager
def boundary(kind: type[TuneError], doing: str) -> Iterator[None]:
    """Attribute whatever escapes the block to ``kind``, keeping typed errors.

    Args:
        kind: the error to raise for anything that is not yet a TuneError.
        doing: what was being done, as in "start the engine".

    Raises:
        TuneError: ``kind`` with the cause's type and message; a TuneError passes through.
    """
    try:
        yield
    except TuneError:
        raise
    except Exception as error:
        raise kind(f"cannot {doing}: {type(error).__name__}: {error}") from error


def first_of(errors: BaseExceptionGroup[BaseException]) -> TuneError | None:
    """The first of our own errors in a group that a TaskGroup raised; None if it holds none."""
    ours: BaseException | None = errors.subgroup(TuneError)
    while isinstance(ours, BaseExceptionGroup):
        ours = ours.exceptions[0]
    return ours if isinstance(ours, TuneError) else None
