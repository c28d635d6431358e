"""Replays a trace of drafts from a file: no server, no model, seconds."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ddtree_tune.core.draft_trace import read_trace, trace_lines
from ddtree_tune.core.errors import SpecError, StoreError
from ddtree_tune.core.prior_table import ForetoldReport
from ddtree_tune.core.replay_table import BUDGETS, TOPKS, ReplayReport
from ddtree_tune.node.problems import read_file
from ddtree_tune.node.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddtree_tune.core.draft_trace import DraftTrace
    from ddtree_tune.core.record import TrialRecord


def load_trace(path: Path) -> DraftTrace:
    """Read a trace; a name that ends with ``.gz`` is unpacked.

    Raises:
        SpecError: it cannot be read or is wrong.
    """
    data = read_file(path, what="a trace")
    try:
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path}: a trace must be JSON lines, with .gz behind its name packed, but got {error}"
        ) from None
    return read_trace(text.split("\n"), str(path))


def check_place(path: Path) -> None:
    """Look at where a file is to go before anything takes time.

    Raises:
        SpecError: no file can be there.
    """
    if not path.resolve().parent.is_dir() or (path.exists() and not path.is_file()):
        raise SpecError(f"{path}: must be a file in a folder that exists, but this is none")


def write_trace(path: Path, trace: DraftTrace) -> None:
    """Write a trace beside and rename; a name that ends with ``.gz`` is packed.

    Raises:
        StoreError: it cannot be written.
    """
    data = "".join(f"{line}\n" for line in trace_lines(trace)).encode()
    _write(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def replay_command(
    path: Path,
    budgets: Sequence[int] | None,
    topks: Sequence[int] | None,
    *,
    results: Path | None = None,
    json_path: Path | None = None,
) -> int:
    """Replay a file and print the plane.

    Args:
        path: the trace.
        budgets: what to replay; usual ones when None.
        topks: what to replay; when None, usual ones of which the trace can tell.
        results: folder of a sweep whose trials say how long steps take; then speed is foretold too.
        json_path: file for the same as JSON.

    Returns:
        The exit code 0.
    """
    if json_path is not None:
        check_place(json_path)
    trace = load_trace(path)
    budgets = budgets or BUDGETS
    topks = topks or [topk for topk in TOPKS if topk <= trace.header.topk]
    report = ReplayReport(trace, budgets, topks)
    lines, fields = list(report.lines()), report.fields()
    if results is not None:
        foretold = ForetoldReport(_records(results), trace, budgets, topks)
        lines += foretold.lines()
        fields["foretold"] = foretold.fields()
    print("\n".join(lines))
    if json_path is not None:
        _write(json_path, (json.dumps(fields, indent=2) + "\n").encode())
    return 0


def _records(results: Path) -> tuple[TrialRecord, ...]:
    records = Store(str(results.resolve())).read_records()
    if not records:
        raise SpecError(f"{results}: must be the results folder of a sweep, but it holds no trial")
    return records


def _write(path: Path, data: bytes) -> None:
    """Write beside and rename, so that half a file never has the name."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StoreError(f"{path}: must be a file that can be written, but got {error.strerror}") from None
