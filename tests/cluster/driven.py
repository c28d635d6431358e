"""A sweep's driver as a process of ours, followed line by line, so that faults hit at a known moment."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

import psutil

from tests.cluster.machines import wait_for


class Driven:
    """A command of ours that runs, on a Ray of its own or in a cluster of ``Machines``."""

    def __init__(self, *argv, machines=None):
        self.lines = []
        self._machines = machines
        environment = os.environ | ({"RAY_ADDRESS": machines.gcs} if machines else {})
        self._process = subprocess.Popen(
            [sys.executable, "-m", *map(str, argv)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self):
        """All that it said."""
        return "".join(self.lines)

    def says(self, pattern, times=1, limit_s=180):
        """Wait until it has said something so often, and return the match; what it said before counts too."""
        deadline = time.monotonic() + limit_s
        while len(found := [match for line in list(self.lines) if (match := re.search(pattern, line))]) < times:
            going = self._reader.is_alive() and time.monotonic() < deadline
            assert going, f"it did not say {pattern!r} {times} times: {self.text}"
            time.sleep(0.1)
        return found[times - 1]

    def ends(self, limit_s=240):
        """Wait for the end; its exit code."""
        code = self._process.wait(limit_s)
        self._reader.join(10)
        return code

    @property
    def process(self):
        """Its own."""
        return psutil.Process(self._process.pid)

    def processes(self):
        """Every process of the cluster, or of the Ray that it started."""
        return self._machines.processes() if self._machines else self.process.children(recursive=True)

    def worker(self, title, limit_s=60):
        """The Ray worker that does something now, by its title."""

        def found():
            return next((one for one, name in titles(self.processes()) if re.match(f"ray::{title}", name)), None)

        return wait_for(found, limit_s)

    def kill(self):
        """End it as a crash does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self):
        """End what is left of it."""
        left = []
        if self._process.poll() is None:
            left = self.process.children(recursive=True)
            self.kill()
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

    def _read(self):
        self.lines.extend(iter(self._process.stdout.readline, ""))


@contextlib.contextmanager
def halted(process):
    """Halt a process where it is, and let it go on in the end."""
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


@contextlib.contextmanager
def halted_trial(driver, machines):
    """Halt the only process of trials between two steps, where it waits for nothing but its driver; it holds its node.

    Args:
        driver: the process of the sweep's.
        machines: where it runs.
    """

    def between_steps():
        return next((one for one, name in titles(machines.processes()) if name.strip() == "ray::TuneTrial"), None)

    with contextlib.ExitStack() as held:
        with halted(driver):  # it asks for no further step
            held.enter_context(halted(wait_for(between_steps)))
        yield


def alive(processes):
    """Those that still run; a zombie is one that nobody waits for."""
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def titles(processes):
    """Processes with what they call themselves."""
    for one in processes:
        with contextlib.suppress(psutil.Error):
            yield one, " ".join(one.cmdline())


def engine_of(processes, trial):
    """The built-in engine's process of one trial, by the start of its id; None where it does not run."""
    return next(
        (one for one, name in titles(processes) if re.search(f"ddtree_tune.builtin.* trial-{trial}", name)), None
    )
