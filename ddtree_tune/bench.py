"""One running server measured without a sweep: ``ddtree-tune bench --base-url URL …``.

The same load, actors, metrics and tables as in a trial; nothing is launched and nothing is judged
but the measurement itself. Exit codes: 0 done, 1 the server or the load broke, 2 the command line
is wrong, 130 interrupted. What was measured is on disk after every cell.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from ddtree_tune.arguments import API_KEY
from ddtree_tune.core.cell_table import cell_fields, cell_lines, unmeasured_fields
from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.engine import Algorithm, EffectiveConfig, EngineConfig, Route
from ddtree_tune.core.errors import (
    EXIT_INTERRUPTED,
    EngineError,
    FailureClass,
    LoadError,
    SpecError,
    StoreError,
    TuneError,
)
from ddtree_tune.core.record import Failure, Origin, Proposal, Span, TrialRecord, TrialStatus
from ddtree_tune.core.spec import LoadSpec
from ddtree_tune.core.yaml_text import sentence
from ddtree_tune.matrix import Matrix
from ddtree_tune.node.apart import LoaderProcess
from ddtree_tune.node.endpoint import Found, find_endpoint
from ddtree_tune.node.fingerprint import fingerprint
from ddtree_tune.node.progress import BenchProgress
from ddtree_tune.node.prompts import load_prompts
from ddtree_tune.node.store import Store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from ddtree_tune.ports import Loader


def bench(arguments: argparse.Namespace) -> int:
    """Measure one server."""
    load = load_of(arguments)
    _check(arguments)
    json_path = arguments.json and arguments.json.resolve()
    look = partial(
        find_endpoint,
        arguments.base_url,
        arguments.model,
        route=Route(arguments.route) if arguments.route else None,
        template=arguments.template,
        api_key=os.environ.get(API_KEY),
    )
    found = asyncio.run(look())
    store = Store(str(arguments.out.resolve()))
    asked: dict[str, Any] = {
        "base_url": found.endpoint.base_url,
        "model": found.endpoint.served_model_name,
        "through": found.how,
    }
    asked |= {"seed": arguments.seed, "load": load.model_dump(mode="json")}
    store.write_text("bench.yaml", yaml.safe_dump(asked, sort_keys=False))
    store.write_fingerprint(fingerprint())
    report = _Bench(load, found, store, json_path, look)
    progress = BenchProgress(steps=len(load.cells()) * load.repeats, window_s=load.window_s, quiet=arguments.quiet)
    progress.say(f"{found.endpoint.served_model_name} at {found.endpoint.base_url} through {found.how}")
    interrupted = False
    try:
        with _loader(load, seed=arguments.seed, stall_s=arguments.stall_s, ray=not arguments.no_ray) as loader:
            report.run(loader, progress)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    print("\n".join(report.lines()))
    print(f"\nTables: {store.root}" + (f"; JSON: {arguments.json}" if arguments.json else ""))
    if interrupted:
        print("Interrupted; what was measured is kept.")
        return EXIT_INTERRUPTED
    return 0 if report.record.status is TrialStatus.COMPLETE else 1


def load_of(arguments: argparse.Namespace) -> LoadSpec:
    """The load that the command line asks for.

    Raises:
        SpecError: a value is wrong.
    """
    plain = ("output_tokens", "ends", "temperature", "top_p", "window_s", "repeats", "prompts", "processes")
    fields = {name: getattr(arguments, name) for name in plain} | {
        "contexts": _numbers("--contexts", arguments.contexts, int),
        "concurrency": _numbers("--concurrencies", arguments.concurrencies, int),
        "rates_rps": _numbers("--rates", arguments.rates, float),
        "families": arguments.families.split(","),
    }
    if not fields["concurrency"] and not fields["rates_rps"]:
        raise SpecError("--concurrencies or --rates must say how much is asked at once, but got neither")
    try:
        load = LoadSpec.model_validate(fields)
        load_prompts(load.prompts, seed=0, streams=1, families=load.families)
    except ValidationError as error:
        raise SpecError(sentence(error, "bench")) from None
    except LoadError as error:
        raise SpecError(f"--prompts: {error}") from None
    return load


def _check(arguments: argparse.Namespace) -> None:
    """Look at what is not part of the load before a server is asked or a file is written.

    Raises:
        SpecError: a value is wrong, or results cannot be written where they are to go.
    """
    if not 0 < arguments.stall_s < math.inf:
        raise SpecError(f"--stall-s must be a number of seconds above 0, but got {arguments.stall_s:g}")
    if arguments.seed < 0:
        raise SpecError(f"--seed must be 0 or more, but got {arguments.seed}")
    try:
        out, json_path = arguments.out.resolve(), arguments.json and arguments.json.resolve()
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise SpecError(f"--out must be a new or empty folder, but got {arguments.out}; results are never mixed")
        above = next(folder for folder in (out, *out.parents) if folder.exists())
        if not _takes_files(above):
            raise SpecError(f"--out must be where a folder can be made, but got {arguments.out} below {above}")
        if json_path is not None:
            # What is renamed over a device would take its place.
            is_taken = json_path == out or (json_path.exists() and not json_path.is_file())
            if is_taken or not (json_path.parent == out or _takes_files(json_path.parent)):
                raise SpecError(f"--json must be a file in a folder that takes one, but got {arguments.json}")
    except OSError as error:
        raise SpecError(f"--out and --json must be places that can be written, but got: {error}") from None


def _takes_files(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


@contextmanager
def _loader(load: LoadSpec, *, seed: int, stall_s: float, ray: bool) -> Iterator[Loader]:
    """The load actor of a trial, or a plain process."""
    if ray:
        # Imported here: Ray takes seconds to import, and a machine without it can measure with --no-ray.
        from ddtree_tune.cluster.actors import RemoteLoader  # noqa: PLC0415
        from ddtree_tune.cluster.joining import joined  # noqa: PLC0415

        with joined():
            yield RemoteLoader(load, seed=seed, stall_s=stall_s, name=f"load-bench-{os.getpid()}")
    else:
        with LoaderProcess(load, seed=seed, stall_s=stall_s) as loader:
            yield loader


class _Bench:
    """One measurement of one server: its record, its files."""

    def __init__(
        self,
        load: LoadSpec,
        found: Found,
        store: Store,
        json_path: Path | None,
        look: Callable[[], Coroutine[Any, Any, Found]],
    ) -> None:
        self._look = look
        config = EngineConfig(Algorithm.AS_IS)
        self._load = load
        self._found = found
        self._store = store
        self._json = json_path
        self._spans: list[Span] = []
        self.record = TrialRecord(
            sweep="bench",
            proposal=Proposal(f"0001-{config.config_id}", config, Origin.BENCH, coding=False),
            status=TrialStatus.FAILED,
            started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            node=found.endpoint.base_url,
            spans=(),
            effective=_effective(found),
            door=found.endpoint.door,
            failure=Failure(FailureClass.INTERRUPTED, "load", "the measurement was stopped", ""),
            fingerprint=fingerprint(),
        )
        self._keep()  # an older file of that name must not outlive this measurement's start

    def run(self, loader: Loader, progress: BenchProgress) -> None:
        """Measure every cell; what breaks ends the measurement and keeps what was measured."""
        matrix = Matrix(loader, self._found.endpoint, running_cap=self._found.running_cap)
        try:
            for cell, repeat in matrix.order(self._load):
                start = time.monotonic()
                try:
                    result = matrix.measure(cell, repeat, check=lambda: None)
                finally:  # Ctrl-C included: what was measured is kept
                    self._spans.append(Span("load", time.monotonic() - start))
                    self.record = replace(self.record, cells=matrix.results, spans=tuple(self._spans))
                    self._keep()
                progress.measured(result.metrics)
                if not result.metrics.requests_ok:
                    self._find_again()
        except TuneError as error:
            self.record = replace(self.record, failure=self._why(error))
        else:
            self.record = replace(self.record, status=TrialStatus.COMPLETE, failure=None)
        self._keep()

    def lines(self) -> list[str]:
        """The table and, if the measurement did not come to its end, why."""
        failure = self.record.failure
        table = cell_lines([cell.metrics for cell in self.record.cells]) if self.record.cells else []
        return ["", *table, *(["", f"Not complete: {failure.failure}: {failure.reason}"] if failure else [])]

    def _find_again(self) -> None:
        """Raise EngineError if the server is gone: nothing that follows would be worth its time."""
        try:
            asyncio.run(self._look())
        except SpecError as error:
            raise EngineError(f"the server stopped answering: {error}", FailureClass.CRASH_REQUEST) from None

    def _why(self, error: TuneError) -> Failure:
        """What ended the measurement: a server that is gone explains whatever broke."""
        try:
            self._find_again()
        except EngineError as gone:
            error = gone
        kind = error.failure if isinstance(error, EngineError) else FailureClass.LOAD
        return Failure(kind, "load", str(error), "")

    def _keep(self) -> None:
        """Write the tables and the JSON as far as they go."""
        self._store.write(self.record)
        if self._json is None:
            return
        known = {cell.metrics.cell_id: cell_fields(cell.metrics) for cell in self.record.cells}
        why = self.record.failure.reason if self.record.failure else "not measured"
        cells = [known.get(cell.cell_id) or unmeasured_fields(cell, why) for cell in self._load.cells()]
        beside = self._json.with_name(f".{self._json.name}.{os.getpid()}")
        try:
            beside.write_text(json.dumps(cells, indent=2) + "\n", encoding="utf-8")
            beside.replace(self._json)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise StoreError(f"--json must be a file that can be written, but got {error}") from None


def _effective(found: Found) -> EffectiveConfig:
    """What the server says that it runs, as far as it says so in a form that is known."""
    with suppress(EngineError):
        return BuiltinDialect().read_back(found.server_info, EngineConfig(Algorithm.AS_IS))
    version = found.server_info.get("version")
    return EffectiveConfig(
        None, None, None, None, None, found.running_cap, found.endpoint.served_model_name, version and str(version)
    )


def _numbers(flag: str, text: str | None, kind: type[int | float]) -> list[float]:
    try:
        return [kind(part) for part in text.split(",")] if text else []
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise SpecError(f"{flag} must be {what} parted by commas, as in 60,1024, but got {text!r}") from None
