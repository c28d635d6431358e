"""The GPUs of this node while a trial holds it: what they do, and whether they are free.

Holds the meter's process and the last half hour of its samples. Nothing here asks NVML itself, so a
call that hangs is seen as silence. Where there is no GPU, and where the meter fails, what was asked
for is None and `GpuWatch.missing` says why; only `GpuWatch.wait_released` takes no silence for an
answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import psutil
from pydantic import ValidationError

from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.core.fields import Strict
from ddtree_tune.core.gpu import SILENCE_NS, Gpu, GpuProcess, GpuSample, Tick, use_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ddtree_tune.core.gpu import GpuUse
    from ddtree_tune.core.trace import CellRun

PERIOD_S = 0.2
HISTORY_S = 1800.0
"""A longer window is not metered; one of eight GPUs takes about 30 MB."""
START_S = 30.0
"""Without persistence mode the driver takes seconds for each GPU."""
TOLERANCE_MIB = 512.0
RELEASE_S = 60.0
_GRACE_S = 1.0


class _Line(Strict):
    """What the meter prints."""

    absent: str = ""
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    samples: tuple[GpuSample, ...] = ()


class GpuWatch:
    """Owns one meter process; ends it when the block ends."""

    def __init__(
        self, *, env: Mapping[str, str] | None = None, period_s: float = PERIOD_S, release_s: float = RELEASE_S
    ) -> None:
        """Set up; nothing runs before `start`.

        Args:
            env: what the server's environment has beyond ours, as its CUDA_VISIBLE_DEVICES.
            period_s: between two samples.
            release_s: how long the memory of a server that has ended may take to come back.
        """
        self._release_s = release_s
        self._idle: Tick | None = None
        """What the GPUs held when this node was first found free."""
        self.gpus: tuple[Gpu, ...] = ()
        """The GPUs that the trial may use; empty until they are known."""
        self.driver: str | None = None
        self._env = os.environ | dict(env or {})
        self._period_s = period_s
        self._ticks: deque[Tick] = deque(maxlen=round(HISTORY_S / period_s))
        self._news = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._absent = ""
        self._why = "the GPU meter was not started"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, limit_s: float = START_S) -> None:
        """Start the meter unless one runs, and wait for its first sample.

        To be called before every cell: a meter that has died is replaced.

        Args:
            limit_s: how long to wait; there may be no sample then either.
        """
        if self._absent or (self._process is not None and self._process.poll() is None):
            return
        self.close()
        argv = [sys.executable, "-m", "ddtree_tune.node.gpu_meter", "--period-s", str(self._period_s)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=self._env, encoding="utf-8")
        with self._news:
            self._process, self._why = process, ""
            before = self._last()
        self._thread = threading.Thread(target=self._read, args=(process,), name="gpu-watch", daemon=True)
        self._thread.start()
        with self._news:
            self._news.wait_for(lambda: self._why or self._last() is not before, limit_s)

    def close(self) -> None:
        """End the meter; what it said is kept."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # a call that hangs in the kernel outlives even SIGKILL
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_GRACE_S)
        self._thread.join(_GRACE_S)

    def missing(self) -> str:
        """Why there is no fresh sample; empty if there is."""
        with self._news:
            last = self._last()
            if self._why:
                return self._why
            if last is None:
                return "the GPU meter has not said anything: NVML hangs or is slow to start"
            silent_ns = time.perf_counter_ns() - last[-1].at_ns
            hangs = f"the GPU meter has been silent for {silent_ns / 1e9:.0f} s: NVML hangs"
            return hangs if silent_ns > SILENCE_NS else ""

    def now(self) -> Tick | None:
        """The latest sample of every GPU; None if it is older than two seconds."""
        with self._news:
            last = self._last()
        return last if last is not None and time.perf_counter_ns() - last[-1].at_ns <= SILENCE_NS else None

    def between(self, start_ns: int, end_ns: int) -> GpuUse | None:
        """What the GPUs did in a window; waits for the sample after its end, until two seconds later.

        Args:
            start_ns: ``time.perf_counter_ns`` of any process of this host.
            end_ns: likewise.
        """
        limit_s = max(0, end_ns + SILENCE_NS - time.perf_counter_ns()) / 1e9
        with self._news:
            self._news.wait_for(lambda: self._why or self._later_than(end_ns), limit_s)
            ticks = list(self._ticks)
        return use_of(ticks, start_ns, end_ns)

    def refuse_taken(self) -> None:
        """Raise if the node is not free for a server; see ``ports.Gpus``.

        Raises:
            EngineError: another process is on a GPU, memory is not back, or NVML does not say (`dirty_node`).
        """
        self.start()
        if self.gpus and (why := self.missing()):
            raise EngineError(f"the GPUs must be seen before a launch, but got: {why}", FailureClass.DIRTY_NODE)
        if others := self.foreign():
            raise EngineError(
                f"no other process must be on a trial's GPUs, but got {', '.join(map(str, others))}; end it",
                FailureClass.DIRTY_NODE,
            )
        if self._idle is None:
            self._idle = self.now()
        self.wait_released(self._idle, SILENCE_NS / 1e9)  # a sample of eight GPUs may take longer than the period

    def await_released(self) -> None:
        """Wait until an ended server's memory is back; see ``ports.Gpus``."""
        self.wait_released(self._idle, self._release_s)

    def metered(self, run: CellRun) -> CellRun:
        """A repeat with what the GPUs did in its window, or why that is not known."""
        if run.window is None:
            return run
        self.start()
        ahead_ns = (
            run.route.clock_ahead_ns if run.route else 0
        )  # the window is on the load's clock, the samples on ours
        use = self.between(run.window.start_ns - ahead_ns, run.window.end_ns - ahead_ns)
        why = "" if use else self.missing() or "the GPU meter did not sample over the whole window"
        return replace(run, gpu=use, gpu_missing=why)

    def wait_released(self, baseline: Tick | None, limit_s: float, tolerance_mib: float = TOLERANCE_MIB) -> None:
        """Wait until every GPU holds what it held before.

        Args:
            baseline: from before the launch; None where there are no GPUs, and nothing to wait for.
            limit_s: how long.
            tolerance_mib: what a GPU may hold beyond it.

        Raises:
            EngineError: memory is not back, or NVML does not say.
        """
        if baseline is None:
            return
        asked_ns, deadline = time.perf_counter_ns(), time.monotonic() + limit_s
        self.start(limit_s)
        while held := self._held(baseline, asked_ns, tolerance_mib):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise EngineError(
                    f"every GPU must hold at most {tolerance_mib:g} MiB more than before the launch, but got "
                    f"{'; '.join(held)}, {limit_s:g} s after the server ended; end what holds it, or restart the node",
                    FailureClass.DIRTY_NODE,
                )
            with self._news:
                self._news.wait(min(left_s, self._period_s))

    def foreign(self, own_pids: Collection[int] = ()) -> tuple[GpuProcess, ...]:
        """Processes on the GPUs that are not ours.

        In a container the driver may name processes of the host, our own among them, that are not
        seen from here. Such a one counts only while we have no process there, and only where its
        GPU holds more than 512 MiB.

        Args:
            own_pids: our processes on the GPUs; none before the launch.
        """

        def counts(one: GpuSample, process: GpuProcess) -> bool:
            return process.name is not None or (not own_pids and (one.memory_used_mib or 0) > TOLERANCE_MIB)

        others = [(one, pid) for one in self.now() or () for pid in one.pids or () if pid not in own_pids]
        named = [(one, GpuProcess(one.gpu, pid, _name(pid))) for one, pid in others]
        return tuple(process for one, process in named if counts(one, process))

    def _read(self, process: subprocess.Popen[str]) -> None:
        """Take the meter's lines until it ends."""
        why = ""
        for text in process.stdout or ():
            try:
                line = _Line.model_validate_json(text)
            except ValidationError as error:
                why = f"the GPU meter must print what it samples, but got {text!r}: {error.errors()[0]['msg']}"
                process.kill()
                break
            with self._news:
                if line.absent:
                    self._absent = line.absent
                elif line.samples:
                    self._ticks.append(line.samples)
                else:
                    self.gpus, self.driver = line.gpus, line.driver
                self._news.notify_all()
        if process.stdout:
            process.stdout.close()
        code = process.wait()
        with self._news:
            self._why = self._absent or why or f"the GPU meter has ended with exit code {code}"
            self._news.notify_all()

    def _held(self, baseline: Tick, since_ns: int, tolerance_mib: float) -> list[str]:
        """Of each GPU that is not free, why, by samples taken since; empty if all are."""
        tick = self.now()
        if tick is None or tick[0].at_ns < since_ns:
            return [f"no sample: {self.missing() or 'NVML is slow'}"]
        after = {one.gpu: one for one in tick}
        found = []
        for before in baseline:
            held_mib = after[before.gpu].memory_used_mib if before.gpu in after else None
            if before.memory_used_mib is None:
                continue  # such a GPU never says what it holds
            if held_mib is None:
                found.append(f"GPU {before.gpu} no longer saying what it holds")
            elif held_mib > before.memory_used_mib + tolerance_mib:
                pids = ", ".join(map(str, after[before.gpu].pids or ())) or "no process that is known"
                more = held_mib - before.memory_used_mib
                found.append(f"{more:.0f} MiB more on GPU {before.gpu}, held by {pids}")
        return found

    def _last(self) -> Tick | None:
        return self._ticks[-1] if self._ticks else None

    def _later_than(self, at_ns: int) -> bool:
        last = self._last()
        return last is not None and last[0].at_ns >= at_ns


def _name(pid: int) -> str | None:
    """The name of a process of ours to see; None if there is none."""
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None
