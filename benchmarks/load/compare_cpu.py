"""Run a command to its end and watch the CPU time of all its processes on the way."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOOK_S = 0.5
"""Between two looks: seldom, for the machine is shared with what is measured."""


@dataclass(frozen=True, slots=True)
class Watched:
    """User and system time of a process tree, as it grew."""

    at_ns: tuple[int, ...]
    """``time.perf_counter_ns`` of each look."""
    cpu_s: tuple[float, ...]
    """So far; what a process used after the last look before its end is not in it."""
    exit_code: int

    def between(self, start_ns: int, end_ns: int) -> float:
        """CPU seconds of an interval, straight lines between the looks."""
        start_s, end_s = np.interp([start_ns, end_ns], self.at_ns, self.cpu_s)
        return float(end_s - start_s)


def watch(argv: list[str], environment: Mapping[str, str], folder: Path) -> Watched:
    """Run a command; its output goes into ``stdout`` and ``stderr`` of the folder."""
    at_ns: list[int] = []
    cpu_s: list[float] = []
    used_s: dict[tuple[int, float], float] = {}  # of every process seen, ended ones too; a pid may be used again
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        process = subprocess.Popen(argv, stdout=out, stderr=err, env=dict(environment))
        root = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in [root, *root.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        times = one.cpu_times()
                        used_s[one.pid, one.create_time()] = times.user + times.system
            at_ns.append(time.perf_counter_ns())
            cpu_s.append(sum(used_s.values()))
            time.sleep(LOOK_S)
    return Watched(tuple(at_ns), tuple(cpu_s), process.returncode)
