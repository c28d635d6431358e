"""The sweep as a command: ``python -m ddtree_tune.run SPEC [--results DIR]``.

Exit codes: 0 done, 1 no trial succeeded or the sweep broke, 2 the spec or the command line is
wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune.arguments import add_run_arguments, guarded
from ddtree_tune.cluster.placement import submitted
from ddtree_tune.cluster.sweep import run_sweep
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.dialects import select
from ddtree_tune.core.errors import EXIT_INTERRUPTED, LoadError, SpecError
from ddtree_tune.core.foresight import Replayed
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.report import answer_lines, outlook
from ddtree_tune.core.space import Space
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.fingerprint import fingerprint
from ddtree_tune.node.problems import load_problems
from ddtree_tune.node.progress import Progress
from ddtree_tune.node.prompts import load_prompts
from ddtree_tune.node.replay_file import load_trace
from ddtree_tune.node.report_file import REPORT, answer_line, write_report
from ddtree_tune.node.search import Study
from ddtree_tune.node.spec_file import read_spec
from ddtree_tune.node.store import Store
from ddtree_tune.node.unfinished import close_unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddtree_tune.core.beliefs import Hope
    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.draft_trace import DraftTrace
    from ddtree_tune.core.record import TrialRecord


def dialect_of(spec: SweepSpec) -> Dialect:
    """How the spec's engine spells the knobs.

    Raises:
        SpecError: the drafter's folder does not say its block size.
    """
    engine = spec.engine
    folder = Path(engine.draft_model) if engine.draft_model is not None else None
    if engine.block_size is not None or folder is None or (engine.kind == "sglang" and not folder.is_dir()):
        return select(engine, engine.block_size)
    try:
        block_size = int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["block_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"engine.draft_model must be the folder of a drafter whose config.json has a block_size, "
            f"but got {engine.draft_model!r}: {type(error).__name__}: {error}"
        ) from None
    return select(engine, block_size)


def traces_of(spec: SweepSpec) -> tuple[DraftTrace, ...]:
    """The traces that the spec names.

    Raises:
        SpecError: one cannot be read, or two are of the same window.
    """
    traces = tuple(load_trace(Path(name)) for name in spec.search.trace)
    windows = [trace.header.window for trace in traces]
    if len(set(windows)) < len(windows):
        raise SpecError(f"search.trace must be of different windows, but got {windows} of {list(spec.search.trace)}")
    return traces


def start(spec_path: Path, results: Path, *, quiet: bool, as_json: bool = False) -> int:
    """Run a new sweep in a folder of its own below ``results``."""
    spec = read_spec(spec_path)
    _check(spec)
    if submitted() and not results.is_absolute():
        raise SpecError(
            f"--results must be an absolute path in a submitted job, but got {results}: its working directory is a "
            "copy that is deleted"
        )
    folder = results / f"{spec.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    store = Store(str(folder.resolve()))
    store.write_spec(spec_path.read_text(encoding="utf-8"))
    store.write_fingerprint(fingerprint())
    return _sweep(spec, store, quiet=quiet, as_json=as_json)


def _check(spec: SweepSpec) -> None:
    """Read every file that the spec names: what is wrong is said before anything is written or started.

    Raises:
        SpecError: a file cannot be used.
    """
    dialect = dialect_of(spec)
    Space.of(spec.space, dialect)
    traces_of(spec)
    for seed in spec.seeds:
        dialect.canonical(seed.config())
    if spec.coding is not None:
        load_problems(spec.coding.problems)
    try:
        load_prompts(spec.load.prompts, seed=spec.search.seed, streams=1, families=spec.load.families)
    except LoadError as error:
        raise SpecError(f"load.prompts: {error}") from None


def resume(folder: Path, *, quiet: bool, as_json: bool = False) -> int:
    """Go on with an interrupted sweep: what is complete stays, what is missing runs."""
    if not (folder / "sweep.yaml").is_file():
        raise SpecError(f"{folder} must be the results folder of a sweep, but got no sweep.yaml in it")
    store = Store(str(folder.resolve()))
    spec = SweepSpec.parse(store.read_spec(), str(folder / "sweep.yaml"))
    _check(spec)
    close_unfinished(store)
    return _sweep(spec, store, quiet=quiet, as_json=as_json)


def _sweep(spec: SweepSpec, store: Store, *, quiet: bool, as_json: bool) -> int:
    dialect = dialect_of(spec)
    records = store.read_records()
    study = Study(spec, dialect, records, _replayed(spec, dialect))
    progress = Progress(spec=spec, quiet=quiet, as_json=as_json, records=list(records))
    about = f"{spec.name}: {spec.question or 'a sweep'}\nresults in {store.root}"
    progress.say(about, "begun", sweep=spec.name, results=store.root)
    try:
        run_sweep(spec, dialect, study, store, progress)
    except KeyboardInterrupt:
        pass  # Ctrl-C before or after Tune's own handling of it
    finally:
        progress.close()
    return _answer(spec, store, study, as_json=as_json)


def _replayed(spec: SweepSpec, dialect: Dialect) -> Replayed | None:
    """What the traces say of every setting that the search or a seed may try; None without traces."""
    traces = traces_of(spec)
    seeds = [dialect.canonical(seed.config()) for seed in spec.seeds]
    return Replayed.of(traces, (*Space.of(spec.space, dialect).points.values(), *seeds)) if traces else None


def _answer(spec: SweepSpec, store: Store, study: Study, *, as_json: bool) -> int:
    """Conclude from what is on disk, print it, and leave the report and what launches the winner."""
    records: Sequence[TrialRecord] = store.read_records()
    conclusion = conclude(records, spec)
    if not as_json:
        print("\n".join(answer_lines(conclusion, records, spec, root=store.root)), flush=True)
    partial = write_report(store, records, conclusion, spec)
    hope = study.next_hope()
    if as_json:
        print(answer_line(store, records, conclusion, spec, partial=partial, hope=hope))
    else:
        print("\n".join(f"\n{line}" for line in _last_words(store, study, hope)))
    if study.stopped is not None:
        return 1
    if not study.done:
        return EXIT_INTERRUPTED
    return 0 if any(record.status is TrialStatus.COMPLETE for record in records) else 1


def _last_words(store: Store, study: Study, hope: Hope | None) -> Iterator[str]:
    """Where the report is, and what to do if this is not the end."""
    yield f"Report: {store.root}/{REPORT}"
    if study.stopped is not None:
        yield f"Given up: {study.stopped}. Once that is mended, go on with: ddtree-tune resume {store.root}"
    elif not study.done:
        yield f"Interrupted; what is complete is kept. Go on with: ddtree-tune resume {store.root}"
    elif hope is not None:
        yield outlook(hope, store.root)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run the sweep."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_tune.run", description="Run a sweep.")
    add_run_arguments(parser)
    arguments = parser.parse_args(argv)
    return guarded(lambda: start(arguments.spec, arguments.results, quiet=arguments.quiet, as_json=arguments.json))


if __name__ == "__main__":
    sys.exit(main())
