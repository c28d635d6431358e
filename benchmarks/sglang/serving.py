"""Servers side by side on one GPU, each owned by the product's own engine.

Starting SGLang takes a minute, most of it imports and graphs; a model this small leaves room for
many. So all are started first, several at a time, and measured one at a time: those that wait sleep.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sglang.rows import Served
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.core.dialects import select
from ddtree_tune.core.engine import EffectiveConfig, EngineHandle, Route, differences
from ddtree_tune.core.errors import EngineError, TuneError
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.engine import NodeEngine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.sglang.settings import Setting
    from ddtree_tune.core.engine import Endpoint

ROOT = Path(__file__).parents[2]
PLUGINS = "sglang.srt.plugins"
STEP_TIMES, TRACE = "DDTREE_TUNE_STEP_TIMES", "DDTREE_TUNE_TRACE"
CONCURRENCIES = (1, 8, 32, 64)
ARGS = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch", "--log-level", "info", "--sleep-on-idle"),
    *("--context-length", "4096"),
)
_ASK_S = 60.0


@dataclass(frozen=True, slots=True)
class Where:
    """How servers are launched."""

    gpu: int
    """The first of those that a server has."""
    command: tuple[str, ...]
    scratch: Path
    """A folder of this GPU's own: its servers' logs and what they write."""
    pair: Path = PAIR
    gpus: int = 1
    """GPUs that each server spreads its model over."""
    args: tuple[str, ...] = ()

    @property
    def visible(self) -> str:
        """The GPUs as CUDA wants them named."""
        return ",".join(str(self.gpu + at) for at in range(self.gpus))


class Clock:
    """What is left of the budget."""

    def __init__(self, budget_s: float) -> None:
        self._end = time.monotonic() + budget_s

    @property
    def left_s(self) -> float:
        """Seconds."""
        return self._end - time.monotonic()

    def has(self, need_s: float) -> bool:
        """Whether so much is left."""
        return self.left_s > need_s

    def cut(self) -> None:
        """Let what runs come to its end and begin nothing new."""
        self._end = min(self._end, time.monotonic())


class Server:
    """One setting's server."""

    def __init__(self, setting: Setting, where: Where, *, deadline_s: float) -> None:
        self.setting = setting
        self.where = where
        self.step_times = where.scratch / f"steps-{setting.slug}.jsonl"
        self.trace = where.scratch / f"trace-{setting.slug}.jsonl"
        spec = _spec(self, deadline_s)
        self._dialect = select(spec.engine, None)
        self._engine = NodeEngine(spec, self._dialect, name=f"{setting.slug}-{where.gpu}")
        self._handle: EngineHandle | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Its native door, where verify steps are counted; only of a server that runs."""
        if self._handle is None:
            raise EngineError(f"{self.setting.name} must run before it is asked, but it was not started")
        endpoint = self._handle.endpoint
        return replace(endpoint, route=Route.GENERATE, template=str(self.where.pair / "target"))

    def start(self, stop: threading.Event) -> Served:
        """Launch and wait; a server that does not come up is a row as well."""
        argv: list[str] = []
        try:
            self._engine.launch(self.setting.config)
            while not isinstance(handle := self._engine.ready(2.0), EngineHandle):
                if stop.is_set():
                    raise EngineError(f"stopped while {handle.phase}")  # a row like any other
            self._handle, argv = handle, list(handle.plan.argv)
            info = asyncio.run(_server_info(handle.endpoint))
            effective = self._dialect.read_back(info, self.setting.config)
        except TuneError as error:
            tail = self._engine.state().log_tail[-3000:]
            return self._row(None, argv, None, [], f"{error}\n{tail}")
        differ = [str(one) for one in differences(self.setting.config, effective)]
        return self._row(handle.ready_s, argv, effective, differ, None)

    def check(self) -> None:
        """Raise EngineError if it has ended."""
        state = self._engine.state()
        if not state.alive:
            raise EngineError(f"{self.setting.name} must run while it is measured, but {state.reason}")

    def stop(self) -> None:
        """End it and keep its log."""
        try:
            log = self._engine.stop()
        except EngineError as error:  # a port that does not come free is no matter on a machine that goes back
            log = str(error)
        (self.where.scratch / f"log-{self.where.gpu}-{self.setting.slug}.txt").write_text(log, encoding="utf-8")

    def _row(
        self,
        ready_s: float | None,
        argv: list[str],
        effective: EffectiveConfig | None,
        differs: list[str],
        error: str | None,
    ) -> Served:
        seen = asdict(effective) if effective else None
        version = effective.version if effective else None
        return Served(self.setting.name, self.where.gpu, ready_s, argv, seen, differs, error, version)


class Fleet:
    """All servers of one GPU."""

    def __init__(self, settings: Sequence[Setting], where: Where, *, deadline_s: float, at_once: int) -> None:
        self._servers = [Server(setting, where, deadline_s=deadline_s) for setting in settings]
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(at_once)

    def start(self) -> Iterator[tuple[Server, Served]]:
        """Each server when it is ready, or has failed."""
        futures = {self._pool.submit(server.start, self._stop): server for server in self._servers}
        for future in as_completed(futures):
            yield futures[future], future.result()

    def stop(self) -> None:
        """End all."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        with ThreadPoolExecutor(len(self._servers)) as pool:
            list(pool.map(Server.stop, self._servers))


async def _server_info(endpoint: Endpoint) -> dict[str, object]:
    async with EngineClient(endpoint, timeout_s=_ASK_S, stall_s=_ASK_S) as client:
        info: dict[str, object] = await client.get_json("/server_info")
    return info


def _spec(server: Server, deadline_s: float) -> SweepSpec:
    where = server.where
    env = {"CUDA_VISIBLE_DEVICES": where.visible}
    if server.setting.is_tree:
        path = [str(plugin_folder(where.scratch)), os.environ.get("PYTHONPATH", ""), str(ROOT)]
        env["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
    if server.setting.timed:
        env[STEP_TIMES] = str(server.step_times)
    if server.setting.traced:
        env[TRACE] = str(server.trace)
    engine = {
        "kind": "sglang",
        "dialect": "ddtree_tune",
        "command": list(where.command),
        "model": str(where.pair / "target"),
        "draft_model": str(where.pair / "draft"),
        "args": [*ARGS, "--tp-size", str(where.gpus), *where.args],
        "env": env,
        "start_deadline_s": deadline_s,
        "stop_grace_s": 1.0,
        "release_s": 2.0,
    }
    load = {"contexts": [60], "concurrency": list(CONCURRENCIES)}
    return SweepSpec.model_validate(
        {"name": "bench", "engine": engine, "space": {"budget": [8], "topk": [4], "window": ["none"]}, "load": load}
        | {"coding": None}
    )


def plugin_folder(scratch: Path) -> Path:
    """A folder that tells SGLang of the plugin in this checkout, for a package that is not installed.

    SGLang finds plugins by the entry points of installed distributions, which are folders on the path.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries = project.get("entry-points", {}).get(PLUGINS, {})
    folder = scratch / "plugin"
    folder.mkdir(exist_ok=True)
    known = {one.name for one in metadata.entry_points(group=PLUGINS)}
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    if not known.issuperset(entries) and not info.exists():
        info.mkdir()
        lines = [f"[{PLUGINS}]", *(f"{name} = {value}" for name, value in entries.items())]
        head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (info / "METADATA").write_text(head, encoding="utf-8")
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
