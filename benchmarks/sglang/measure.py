"""What is measured on one GPU, and in which order: what is worth most comes first."""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.sglang import lossless
from benchmarks.sglang.check import Check, refused
from benchmarks.sglang.prompts import CHECK, read
from benchmarks.sglang.rows import Failed, Speed
from benchmarks.sglang.serving import CONCURRENCIES, Fleet, Server
from benchmarks.sglang.settings import CHAIN, NONE, REFUSED, Setting
from benchmarks.sglang.steps import read_steps
from benchmarks.sglang.traced import trace
from ddtree_tune.core.cell_table import cell_fields
from ddtree_tune.core.errors import TuneError
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.spec import LoadSpec
from ddtree_tune.node.apart import LoaderProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.sglang.prompts import Prompt
    from benchmarks.sglang.rows import Reply, Rows
    from benchmarks.sglang.serving import Clock, Where
    from ddtree_tune.core.workload import Cell

PARTS = ("lossless", "check", "speed", "steps")
_STOP_S = 12.0
"""Kept for ending the servers and packing their logs."""
_SCORE_S = 5.0
"""Kept for judging what was said last."""
_CHECK_S = 10.0
"""Kept for checking one server."""
_READ_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run measures."""

    parts: tuple[str, ...]
    bursts: int
    """How often every 16 prompts are sent at once."""
    rounds: int
    """Repeats of every cell."""
    window_s: float
    at_once: int
    """Servers that start at the same time."""
    start_s: float
    """Launch to ready, at most."""
    alone: tuple[str, ...]
    """Settings that are also asked one request after the other."""
    concurrencies: tuple[int, ...] = CONCURRENCIES


class Gpu:
    """One GPU's servers and what is measured on them."""

    def __init__(
        self,
        settings: Sequence[Setting],
        where: Where,
        asked: Asked,
        *,
        prompts: list[Prompt],
        rows: Rows,
        clock: Clock,
    ) -> None:
        self._settings, self._where, self._asked = settings, where, asked
        self._prompts, self._rows, self._clock = prompts, rows, clock
        self._draw = random.Random(where.gpu)
        self._up: list[Server] = []
        self._judged: set[str] = set()
        self._unjudged: list[Reply] = []

    def run(self) -> None:
        """Start, measure, end; whatever breaks is a row and ends no more than it must."""
        asked = self._asked
        fleet = Fleet(self._settings, self._where, deadline_s=asked.start_s, at_once=asked.at_once)
        try:
            self._start(fleet)
            if "lossless" in asked.parts:
                self._lossless()
            if "check" in asked.parts:
                self._check()
            self._load()
        except Exception:  # noqa: BLE001  # a fault of this script is to be read beside what was measured
            self._rows.add(Failed("all", self._where.gpu, "run", traceback.format_exc()))
            self._say(traceback.format_exc())
        finally:
            self._say("ending the servers")
            fleet.stop()

    def _start(self, fleet: Fleet) -> None:
        """Bring all up; the first pass of greedy replies fills the time while the rest are starting."""
        for server, row in fleet.start():
            if server.setting in REFUSED:
                self._rows.add(refused(row))
                continue
            self._rows.add(row)
            if row.error is not None:
                self._say(f"{row.setting} did not start: {row.error}")
                continue
            self._say(f"{row.setting} ready in {row.ready_s:.1f} s {' '.join(row.differs)}")
            self._up.append(server)
            if server.setting.traced:
                self._trace(server)
            elif "lossless" in self._asked.parts and not server.setting.timed:
                self._replies(server, "crowd", 0)
        self._judge()

    def _lossless(self) -> None:
        for server in self._plain_first():
            if server.setting.serves and server.setting.name in self._asked.alone:
                self._replies(server, "alone", 0)
        self._judge()
        for turn in range(self._asked.bursts):
            for server in self._shuffled():
                if server.setting.serves and self._clock.has(_STOP_S):
                    self._replies(server, "burst cached" if turn % 2 else "burst", turn)
            self._judge()

    def _check(self) -> None:
        """What else a server must do, held against the one without speculation."""
        up = self._plain_first()
        if not up or up[0].setting != NONE:
            return
        first, *others = up
        *questions, long = read(file=CHECK)
        check = Check(first, [*questions[: len(self._prompts)], long])

        def base() -> None:
            for row in check.base():
                self._rows.add(row)

        if not self._tried(first, "check", base):
            return
        for server in others:

            def compared(server: Server = server) -> None:
                for row in check.of(server):
                    self._rows.add(row)

            if server.setting.serves and self._clock.has(_STOP_S + _CHECK_S):
                self._tried(server, "check", compared)

    def _trace(self, server: Server) -> None:
        """What the server drafts along every prompt's reply, replayed; asked for nothing else."""

        def traced() -> None:
            for row in trace(server, self._prompts):
                self._rows.add(row)

        self._tried(server, "trace", traced)

    def _replies(self, server: Server, mode: str, turn: int) -> None:
        """Ask every prompt, and keep what is said."""
        size = lossless.CROWD if mode.startswith("burst") else len(self._prompts)
        if not self._clock.has(_STOP_S + _SCORE_S):
            return
        for first in range(0, len(self._prompts), size):
            some = self._prompts[first : first + size]

            def asked(some: list[Prompt] = some, first: int = first) -> None:
                for reply in lossless.ask(server, some, lossless.Pass(mode, turn, first)):
                    self._rows.add(reply)
                    self._unjudged.append(reply)

            if not self._tried(server, f"{mode} {turn}", asked):
                return

    def _judge(self) -> None:
        """Let the server without speculation read all new replies, some at a time."""
        plain = next((server for server in self._up if server.setting == NONE), None)
        new = {reply.key: reply for reply in self._unjudged if reply.key not in self._judged}
        self._unjudged.clear()
        while plain is not None and new and self._clock.has(_STOP_S):
            some = [new.pop(key) for key in list(new)[:_READ_AT_ONCE]]

            def read(server: Server = plain, some: list[Reply] = some) -> None:
                for score in lossless.score(server, self._prompts, some):
                    self._rows.add(score)
                    self._judged.add(score.key)

            if not self._tried(plain, "score", read):
                return

    def _load(self) -> None:
        """Every cell of every setting, round by round in another order, so that a drift hits no setting alone."""
        asked = self._asked
        load = LoadSpec(
            contexts=(60,), concurrency=asked.concurrencies, window_s=asked.window_s, repeats=max(1, asked.rounds)
        )
        with LoaderProcess(load, seed=8, stall_s=20.0) as loader:
            for turn in range(asked.rounds if "speed" in asked.parts else 0):
                for cell in load.cells():
                    for server in self._shuffled():
                        if server.setting.serves:
                            self._cell(loader, server, cell, turn)
                if turn == 0:
                    self._steps(loader, load)
            if "speed" not in asked.parts:
                self._steps(loader, load)

    def _steps(self, loader: LoaderProcess, load: LoadSpec) -> None:
        """Load on the servers that write down their steps; what they wrote is summed up by batch size."""
        for server in [server for server in self._up if server.setting.timed and "steps" in self._asked.parts]:
            for cell in load.cells():
                self._cell(loader, server, cell, 0)

            def keep(server: Server = server) -> None:
                for row in read_steps(server.step_times, server.setting.name, server.where.gpu):
                    self._rows.add(row)

            self._tried(server, "steps", keep)

    def _cell(self, loader: LoaderProcess, server: Server, cell: Cell, turn: int) -> None:
        if not self._clock.has(_STOP_S + 3 * cell.window_s):
            return
        users = cell.concurrency or 0

        def measured() -> None:
            run = loader.run(server.endpoint, cell, turn, server.check)
            metrics = cell_fields(measure([run], running_cap=max(self._asked.concurrencies)))
            self._rows.add(Speed(server.setting.name, server.where.gpu, turn, users, metrics))
            self._say(
                f"{server.setting.name} x{users}: {metrics['output_tps'] or 0:.0f} tok/s, "
                f"accepts {metrics['accept_len'] or 0:.2f} {' '.join(metrics['flags'])}"
            )

        self._tried(server, f"speed x{users}", measured)

    def _tried(self, server: Server, what: str, work: Callable[[], None]) -> bool:
        """Do it; what breaks is a row, and a server that is gone is not asked again."""
        try:
            work()
        except (TuneError, OSError, KeyError, ValueError) as error:
            self._rows.add(Failed(server.setting.name, server.where.gpu, what, f"{type(error).__name__}: {error}"))
            self._say(f"{server.setting.name} {what}: {type(error).__name__}: {error}")
            try:
                server.check()
            except TuneError as gone:
                self._say(str(gone))
                self._up.remove(server)
            return False
        return True

    def _plain_first(self) -> list[Server]:
        """Up servers, the baselines before the others."""
        return sorted(self._up, key=lambda server: (server.setting != NONE, server.setting != CHAIN))

    def _shuffled(self) -> list[Server]:
        return self._draw.sample(self._up, len(self._up))

    def _say(self, text: str) -> None:
        print(f"[gpu {self._where.gpu}, {self._clock.left_s:.0f} s left] {text}", flush=True)
