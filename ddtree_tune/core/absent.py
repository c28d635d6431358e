"""Why a number of a cell is missing, in words."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ddtree_tune.core.gpu import GpuNumbers

if TYPE_CHECKING:
    from ddtree_tune.core.metrics import CellMetrics

OF_GPUS = tuple(field.name for field in fields(GpuNumbers))
"""The fields that say what the GPUs did."""
_NEED_A_WINDOW = ("output_tps", "output_tokens", "user_tps", "accept_len", "in_flight_mean", "answering_max")


def reasons(metrics: CellMetrics, *, failures: int, gpu_why: str) -> tuple[tuple[str, str], ...]:
    """Say of every missing number why it is missing.

    Args:
        metrics: the cell.
        failures: how many of its requests failed.
        gpu_why: why what the GPUs did is not known, if it is not.

    Returns:
        (field, why) of each number that is None.
    """
    uncounted = "the server did not count the tokens of every request"
    if not metrics.window_s:
        why = "the slots were never all busy" + (f": {failures} requests failed" if failures else "")
        absent = dict.fromkeys((*_NEED_A_WINDOW, *OF_GPUS), why)
    else:
        absent = {
            "output_tps": uncounted if metrics.output_tokens is None else "no token arrived in the window",
            "output_tokens": uncounted,
            "user_tps": "no request with two chunks and counted tokens ended in the window",
            "accept_len": "no request that ended in the window reports verify steps",
            **dict.fromkeys(OF_GPUS, gpu_why),
        }
        if metrics.power_w is not None:
            absent["joules_per_token"] = absent["output_tps"]
    absent |= {
        "output_tps_ci95": absent["output_tps"],
        "cached_share": "the server does not report cached tokens",
        "prompt_tokens_mean": "the server does not report prompt tokens",
        "client_lag_p99_s": "fewer than 100 lag samples",
    }
    found = [(name, why) for name, why in absent.items() if getattr(metrics, name) is None]
    for name in ("user_tps", "accept_len"):  # what the cell lacks as well is said once
        lacking = [one.family for one in metrics.families if getattr(one, name) is None]
        if getattr(metrics, name) is not None:
            found += [(f"{name} of {family}", absent[name]) for family in lacking]
    return tuple(found)
