"""What the GPUs of a node do while a window is open: samples, and what they add up to.

A tick holds one sample of every GPU. A number about a window is had only where the ticks cover it:
one before its start, one after its end, and no silence between that is longer than two seconds.
What a GPU does not report is None for all, never a sum over the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddtree_tune.core.trace import CellRun, Window

SILENCE_NS = 2_000_000_000
"""A sample that is older tells nothing of now, and a longer gap nothing of what happened in it."""
NOT_METERED = "no GPU was metered"
NOT_REPORTED = "the GPUs did not report it throughout"
_T = TypeVar("_T")


class Throttle(StrEnum):
    """Why a GPU runs below the clock that it would otherwise have."""

    POWER_CAP = "sw_power_cap"
    """The power limit: usual on a busy large GPU, and part of what its buyer gets."""
    HW_SLOWDOWN = "hw_slowdown"
    SW_THERMAL = "sw_thermal"
    HW_THERMAL = "hw_thermal"
    POWER_BRAKE = "hw_power_brake"
    """The rack's power supply asked for it."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that a trial may use."""

    index: int
    """NVML's, as nvidia-smi shows it."""
    name: str
    uuid: str
    memory_total_mib: float | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment; None is what it does not report."""

    gpu: int
    """NVML's index."""
    at_ns: int
    """``time.perf_counter_ns`` of the host, taken with the energy."""
    energy_mj: int | None
    """Counter since the driver was loaded, in millijoules."""
    power_w: float | None
    memory_used_mib: float | None
    """Without what the driver reserves."""
    sm_clock_mhz: int | None
    temperature_c: int | None
    reasons: tuple[Throttle, ...] | None
    pids: tuple[int, ...] | None
    """Processes that compute on it, by the ids of whichever namespace the driver sees."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU."""

    gpu: int
    pid: int
    name: str | None
    """None where no such process is seen from here: the driver counts in another namespace."""

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name or 'of another container'}) on GPU {self.gpu}"


Tick: TypeAlias = tuple[GpuSample, ...]
"""One sample of every GPU, in one order."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """All GPUs of a node over one window."""

    gpus: int
    samples: int
    """Ticks inside the window."""
    energy_j: float | None
    """Of all GPUs together; None where fewer than two ticks lie inside."""
    energy_basis: Literal["counter", "power"] | None
    """The GPUs' own counters, else the integral of the power they report."""
    power_w: float | None
    """Mean of all GPUs together: energy over the window's length."""
    memory_used_gib: float | None
    """Most that all together held."""
    sm_clock_mhz: float | None
    """Mean over GPUs and ticks."""
    sm_clock_min_mhz: int | None
    temperature_c: int | None
    """Highest of any."""
    throttled_share: float | None
    """Share of the ticks in which heat or the hardware held any GPU back; the power limit does not count."""
    power_capped_share: float | None
    """Share of the ticks in which the power limit held any GPU back."""
    reasons: tuple[Throttle, ...]
    """All that were seen, in the order of `Throttle`."""


def use_of(ticks: Sequence[Tick], start_ns: int, end_ns: int) -> GpuUse | None:
    """What the GPUs did in a window.

    Energy is the difference of each GPU's counter at the window's two ends, linear between the ticks
    around an end. Where a counter is missing: the integral of the reported power, by the trapezoid
    rule; boards since Ampere report a mean of the last second, so that it lags by half of one.

    Source: NVML `nvmlDeviceGetTotalEnergyConsumption` and `nvmlDeviceGetPowerUsage`.

    Args:
        ticks: in the order of time.
        start_ns: ``time.perf_counter_ns`` of the same host.
        end_ns: likewise.

    Returns:
        None where the ticks do not cover the window.
    """
    around = _covering(ticks, start_ns, end_ns)
    if around is None:
        return None
    inside = [tick for tick in around if start_ns <= tick[0].at_ns < end_ns]
    energy_j, basis = _energy(around, start_ns, end_ns) if len(inside) >= 2 else (None, None)
    memory = [sum(row) / 1024 for row in _rows(inside, lambda one: one.memory_used_mib)]
    clocks = [clock for row in _rows(inside, lambda one: one.sm_clock_mhz) for clock in row]
    temperatures = [degrees for row in _rows(inside, lambda one: one.temperature_c) for degrees in row]
    held = [{reason for one in row for reason in one} for row in _rows(inside, lambda one: one.reasons)]
    return GpuUse(
        gpus=len(around[0]),
        samples=len(inside),
        energy_j=energy_j,
        energy_basis=basis,
        power_w=None if energy_j is None else energy_j * 1e9 / (end_ns - start_ns),
        memory_used_gib=max(memory, default=None),
        sm_clock_mhz=sum(clocks) / len(clocks) if clocks else None,
        sm_clock_min_mhz=min(clocks, default=None),
        temperature_c=max(temperatures, default=None),
        throttled_share=sum(bool(one - {Throttle.POWER_CAP}) for one in held) / len(held) if held else None,
        power_capped_share=sum(Throttle.POWER_CAP in one for one in held) / len(held) if held else None,
        reasons=tuple(reason for reason in Throttle if any(reason in one for one in held)),
    )


@dataclass(frozen=True, slots=True)
class GpuNumbers:
    """What the GPUs did in all repeats of a cell; the fields are `CellMetrics`'s."""

    joules_per_token: float | None
    power_w: float | None
    gpu_memory_gib: float | None
    sm_clock_mhz: float | None
    temperature_c: int | None


def gpu_numbers(windows: Sequence[tuple[CellRun, Window]], tokens: Sequence[int | None]) -> GpuNumbers:
    """Pool the repeats of one cell; one that was not metered counts in none of the numbers.

    Joules per output token: the energy of all GPUs over the tokens that arrived, both summed over
    the same windows. Power: the same energy over the windows' length.

    Args:
        windows: repeats with a window.
        tokens: of each, output tokens inside its window; None if the server did not count them.
    """
    uses = [(run.gpu, window.seconds, count) for (run, window), count in zip(windows, tokens, strict=True) if run.gpu]
    energies = [(use.energy_j, seconds, count) for use, seconds, count in uses if use.energy_j is not None]
    counted = [(energy, count) for energy, _, count in energies if count is not None]
    total = sum(count for _, count in counted)
    clocks = [(use.sm_clock_mhz, use.samples) for use, *_ in uses if use.sm_clock_mhz is not None]
    return GpuNumbers(
        joules_per_token=sum(energy for energy, _ in counted) / total if total else None,
        power_w=sum(one[0] for one in energies) / sum(one[1] for one in energies) if energies else None,
        gpu_memory_gib=max((one.memory_used_gib for one, *_ in uses if one.memory_used_gib is not None), default=None),
        sm_clock_mhz=sum(mhz * count for mhz, count in clocks) / sum(one[1] for one in clocks) if clocks else None,
        temperature_c=max((one.temperature_c for one, *_ in uses if one.temperature_c is not None), default=None),
    )


def why_absent(runs: Sequence[CellRun]) -> str:
    """Why a number of `GpuNumbers` is None, where the repeats have windows and counted tokens."""
    if any(run.gpu is not None for run in runs):
        return NOT_REPORTED
    return next((run.gpu_missing for run in runs if run.gpu_missing), NOT_METERED)


def _covering(ticks: Sequence[Tick], start_ns: int, end_ns: int) -> Sequence[Tick] | None:
    """The ticks from the last before a window to the first after it; None where they do not cover it."""
    first = bisect_right(ticks, start_ns, key=lambda tick: tick[-1].at_ns) - 1
    last = bisect_left(ticks, end_ns, key=lambda tick: tick[0].at_ns)
    around = ticks[first : last + 1]
    if first < 0 or last >= len(ticks) or start_ns >= end_ns or len({len(tick) for tick in around}) != 1:
        return None
    silent = any(after[0].at_ns - before[0].at_ns > SILENCE_NS for before, after in pairwise(around))
    return None if silent else around


def _energy(
    ticks: Sequence[Tick], start_ns: int, end_ns: int
) -> tuple[float, Literal["counter", "power"]] | tuple[None, None]:
    """Joules of all GPUs in a window that the ticks cover, and what they were taken from."""
    times = [[one.at_ns for one in gpu] for gpu in zip(*ticks, strict=True)]
    counters = [list(gpu) for gpu in zip(*_rows(ticks, lambda one: one.energy_mj), strict=True)]
    if counters and all(before <= after for gpu in counters for before, after in pairwise(gpu)):
        spent = [_at(end_ns, *gpu) - _at(start_ns, *gpu) for gpu in zip(times, counters, strict=True)]
        return sum(spent) / 1e3, "counter"
    powers = [list(gpu) for gpu in zip(*_rows(ticks, lambda one: one.power_w), strict=True)]
    if not powers:
        return None, None
    return sum(_area(*gpu, start_ns, end_ns) for gpu in zip(times, powers, strict=True)) / 1e9, "power"


def _rows(ticks: Sequence[Tick], of: Callable[[GpuSample], _T | None]) -> list[list[_T]]:
    """A value of every GPU for every tick; empty if any is not known."""
    rows = [[value for one in tick if (value := of(one)) is not None] for tick in ticks]
    return rows if all(len(row) == len(tick) for row, tick in zip(rows, ticks, strict=True)) else []


def _at(when: int, times: Sequence[int], values: Sequence[float]) -> float:
    """A value between two points of a line; ``times`` enclose ``when``."""
    after = min(bisect_right(times, when), len(times) - 1)
    begin, end = times[after - 1], times[after]
    return values[after - 1] + (values[after] - values[after - 1]) * (when - begin) / (end - begin)


def _area(times: Sequence[int], values: Sequence[float], start: int, end: int) -> float:
    """Integral of a line of points from start to end, both enclosed by ``times``."""
    inner = [(time, value) for time, value in zip(times, values, strict=True) if start < time < end]
    points = [(start, _at(start, times, values)), *inner, (end, _at(end, times, values))]
    return sum((after[0] - before[0]) * (after[1] + before[1]) / 2 for before, after in pairwise(points))
