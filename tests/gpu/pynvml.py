# ruff: noqa: N801, N802, N816, N818 - the names are NVML's
"""NVML without a GPU: what a test writes into the folder FAKE_GPU_DIR is what this library says.

``state.json`` describes the GPUs, all alike: ``count``, ``name``, ``total_mib``, ``idle_mib``,
``power_w`` (a number, or ``[[since, watts], …]`` with ``since`` in seconds of ``time.perf_counter``),
``sm_clock_mhz``, ``temperature_c``, ``throttle`` (the bits of nvml.h), ``energy_counter`` (false: not
supported), ``lost`` (true: every call fails), ``hang`` (true: every call about a GPU hangs) and ``delay_s``
(what such a call takes). Without the file there is no driver. It is read at every call, and so may change.

``<pid>.json`` is a process with memory on a GPU: ``{"gpu": 0, "mib": 1000, "linger_s": 0}``. Its
memory counts while the process lives, and ``linger_s`` longer; null is for ever. With ``"host": true``
it is a process of another namespace, which lives as long as the file.
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0
nvmlMemory_v2 = 0x02000028
DEFAULTS = {
    "count": 1,
    "name": "Fake H200",
    "total_mib": 140_000,
    "idle_mib": 4,
    "power_w": 100.0,
    "sm_clock_mhz": 1980,
    "temperature_c": 40,
    "throttle": 1,
    "energy_counter": True,
    "lost": False,
    "hang": False,
    "delay_s": 0.0,
}
_died: dict[Path, float] = {}


class NVMLError(Exception):
    """Base of NVML's errors."""


class NVMLError_LibraryNotFound(NVMLError):
    """There is no driver."""

    def __init__(self):
        super().__init__("NVML Shared Library Not Found")


class NVMLError_NotSupported(NVMLError):
    """This GPU does not have it."""

    def __init__(self):
        super().__init__("Not Supported")


class NVMLError_GpuIsLost(NVMLError):
    """The GPU has fallen off the bus."""

    def __init__(self):
        super().__init__("GPU is lost")


def _folder():
    return Path(os.environ["FAKE_GPU_DIR"])


def _state():
    try:
        return DEFAULTS | json.loads((_folder() / "state.json").read_text())
    except FileNotFoundError:
        raise NVMLError_LibraryNotFound from None


def _gpu():
    """The state as a call about a GPU finds it."""
    state = _state()
    while state["hang"]:
        time.sleep(0.05)
        state = _state()
    if state["lost"]:
        raise NVMLError_GpuIsLost
    time.sleep(state["delay_s"])
    return state


def _alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _holders(gpu):
    """(pid, MiB, lives) of everything that holds memory."""
    found = []
    for path in _folder().glob("[0-9]*.json"):
        try:
            held = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            continue  # just taken away, or not yet whole
        if held["gpu"] != gpu:
            continue
        lives = held.get("host") or _alive(int(path.stem))
        linger_s = held.get("linger_s", 0)
        if lives or linger_s is None or time.monotonic() < _died.setdefault(path, time.monotonic()) + linger_s:
            found.append((int(path.stem), held["mib"], lives))
    return found


def _energy_mj(power_w, now_s):
    """Integral of the power since the clock's zero."""
    steps = power_w if isinstance(power_w, list) else [[0.0, power_w]]
    ends = [since for since, _ in steps[1:]] + [now_s]
    spans = [(max(0.0, min(end, now_s) - since), watts) for (since, watts), end in zip(steps, ends, strict=True)]
    return round(1e3 * sum(seconds * watts for seconds, watts in spans))


def nvmlInit():
    _state()


def nvmlSystemGetDriverVersion():
    return "580.95.05"


def nvmlDeviceGetCount():
    return _state()["count"]


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetName(handle):
    return _gpu()["name"]


def nvmlDeviceGetUUID(handle):
    return f"GPU-fake-{handle}"


def nvmlDeviceGetTotalEnergyConsumption(handle):
    state = _gpu()
    if not state["energy_counter"]:
        raise NVMLError_NotSupported
    return _energy_mj(state["power_w"], time.perf_counter())


def nvmlDeviceGetPowerUsage(handle):
    power_w, now_s = _gpu()["power_w"], time.perf_counter()
    if isinstance(power_w, list):
        power_w = [watts for since, watts in power_w if since <= now_s][-1]
    return round(1e3 * power_w)


def nvmlDeviceGetMemoryInfo(handle, version=None):
    state = _gpu()
    used = state["idle_mib"] + sum(mib for _, mib, _ in _holders(handle))
    return SimpleNamespace(total=state["total_mib"] << 20, used=used << 20, free=(state["total_mib"] - used) << 20)


def nvmlDeviceGetClockInfo(handle, kind):
    return _gpu()["sm_clock_mhz"]


def nvmlDeviceGetTemperature(handle, sensor):
    return _gpu()["temperature_c"]


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return _gpu()["throttle"]


def nvmlDeviceGetComputeRunningProcesses(handle):
    _gpu()
    return [SimpleNamespace(pid=pid, usedGpuMemory=mib << 20) for pid, mib, lives in _holders(handle) if lives]
