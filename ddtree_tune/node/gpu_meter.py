"""Samples the GPUs of this node: ``python -m ddtree_tune.node.gpu_meter --period-s 0.2``.

A process of its own, because an NVML call can hang for good once a GPU has fallen off the bus, and
that must not hang who asks. One JSON object a line: first the GPUs, or why there is nothing to say,
then a sample of each for every period. It ends when its stdin closes or its parent dies, even while
a call hangs: the calls are made in a thread, which the process does not wait for.

NVML counts GPUs in the order of the bus. So does CUDA_VISIBLE_DEVICES where all GPUs are alike, and
anywhere with CUDA_DEVICE_ORDER=PCI_BUS_ID.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pynvml

from ddtree_tune.core.gpu import Gpu, GpuSample, Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MIB = 2**20
_LOOK_S = 0.1
"""Between two looks at whether the parent lives."""
_REASONS = {
    0x04: Throttle.POWER_CAP,
    0x08: Throttle.HW_SLOWDOWN,
    0x20: Throttle.SW_THERMAL,
    0x40: Throttle.HW_THERMAL,
    0x80: Throttle.POWER_BRAKE,
}
"""Source: ``nvmlClocksEventReason*`` in nvml.h. An idle GPU, a clock that somebody set and one that
follows another GPU's are no throttling."""


def visible(uuids: Sequence[str], wanted: str | None) -> list[int]:
    """Which GPUs CUDA would show, by the rules of CUDA_VISIBLE_DEVICES.

    Args:
        uuids: of all GPUs, in NVML's order.
        wanted: the variable; None if it is not set.

    Returns:
        Their indices. The first word that names no GPU ends the list, as it does in CUDA.
    """
    if wanted is None:
        return list(range(len(uuids)))
    found = []
    for word in (part.strip() for part in wanted.split(",")):
        named = [number for number, uuid in enumerate(uuids) if word and (uuid.startswith(word) or word == str(number))]
        if not named:
            break
        found.append(named[0])
    return list(dict.fromkeys(found))


def sample(index: int, handle: Any) -> GpuSample:
    """Read one GPU; what it does not say, or no longer, is None."""
    before_ns = time.perf_counter_ns()
    energy_mj = _ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    at_ns = (before_ns + time.perf_counter_ns()) // 2
    power_mw = _ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    bits = _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    processes = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return GpuSample(
        gpu=index,
        at_ns=at_ns,
        energy_mj=energy_mj,
        power_w=None if power_mw is None else power_mw / 1e3,
        memory_used_mib=None if memory is None else memory.used / _MIB,
        sm_clock_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        temperature_c=_ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        reasons=None if bits is None else tuple(reason for bit, reason in _REASONS.items() if bits & bit),
        pids=None if processes is None else tuple(process.pid for process in processes),
    )


def _ask(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _handles() -> dict[int, Any]:
    """The GPUs that a trial may use, by index."""
    every = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in every]
    return {index: every[index] for index in visible(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))}


def _describe(index: int, handle: Any) -> Gpu:
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    total_mib = None if memory is None else memory.total / _MIB
    return Gpu(index, pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle), total_mib)


def _say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def _meter(period_s: float) -> None:
    """Say what there is, then sample it for ever."""
    try:
        pynvml.nvmlInit()
        handles = _handles()
        gpus = [asdict(_describe(index, handle)) for index, handle in handles.items()]
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        _say(absent=f"NVML does not work on this node: {error}")
        return
    if not handles:
        wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
        _say(absent="this node has no GPU" if wanted is None else f"CUDA_VISIBLE_DEVICES={wanted} names no GPU")
        return
    _say(driver=driver, gpus=gpus)
    due_s = time.monotonic()
    while True:
        _say(samples=[asdict(sample(index, handle)) for index, handle in handles.items()])
        due_s = max(due_s + period_s, time.monotonic())  # a period that was missed is not made up for
        time.sleep(max(0.0, due_s - time.monotonic()))


def main(argv: Sequence[str] | None = None) -> int:
    """Sample until nobody listens; 0 also where there is nothing to sample."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_tune.node.gpu_meter", description=__doc__)
    parser.add_argument("--period-s", type=float, default=0.2)
    period_s = parser.parse_args(argv).period_s
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the owner's to handle, which then closes our stdin
    ended: list[int] = []

    def run() -> None:
        try:
            _meter(period_s)
        except BrokenPipeError:
            ended.append(0)
        except BaseException:
            ended.append(1)
            raise
        ended.append(0)

    parent = os.getppid()
    threading.Thread(target=run, daemon=True).start()
    while not ended and os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK_S)
        if readable and not os.read(0, 4096):
            break
    return ended[0] if ended else 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a thread in a call that hangs must not be waited for
