"""What the emitter's log says about one load: rates, latencies and requests in flight as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Truth:
    """One load as the server sent it."""

    span_tps: float
    """Over the tool's own measured interval."""
    steady_ns: tuple[int, int]
    """From the arrival that filled the last slot to the last arrival: all slots are busy in between."""
    steady_tps: float
    steady_chunks: int
    in_flight: float
    """Mean over the steady part: arrival to last chunk."""
    tpot_s: float
    """Mean over the measured requests, (last - first) / tokens after the first chunk."""
    token_itl_p99_s: float
    """Chunk gap over its tokens, once per token."""
    request_itl_p99_s: float
    """The same as ``tpot_s``, over requests."""
    ttft_p50_s: float
    chunks: int
    """Sent in all, warm-up included."""


def truth_of(records: list[dict[str, Any]], streams: int, requests: int, window_ns: tuple[int, int] | None) -> Truth:
    """Reduce a log.

    Args:
        records: of the emitter's ``/truth``; every request must have been sent to its end.
        streams: slots of the closed loop.
        requests: the last so many are the measured ones, if the tool does not name its window.
        window_ns: the tool's own measured interval, if it does.
    """
    records = sorted(records, key=lambda record: record["received_ns"])
    sent_ns = np.concatenate([record["sent_ns"] for record in records])
    tokens = np.concatenate([np.diff(record["counts"], prepend=0) for record in records])
    if window_ns is None:
        measured = records[-requests:]
        last_ns = max(record["sent_ns"][-1] for record in measured)
        window_ns = (measured[0]["received_ns"], last_ns + 1)
    else:
        measured = [record for record in records if window_ns[0] <= record["received_ns"] < window_ns[1]]
    steady_ns = (measured[streams - 1]["received_ns"], measured[-1]["received_ns"])
    busy_ns = sum(_overlap_ns(record, steady_ns) for record in records)
    each = [(np.asarray(record["sent_ns"]), np.diff(record["counts"])) for record in measured]
    tpot_s = np.asarray([(sent[-1] - sent[0]) / after.sum() for sent, after in each]) / 1e9
    itl_s = np.concatenate([np.repeat(np.diff(sent) / after, after) for sent, after in each]) / 1e9
    ttft_s = np.asarray([record["sent_ns"][0] - record["received_ns"] for record in measured]) / 1e9
    return Truth(
        span_tps=_tps(sent_ns, tokens, window_ns),
        steady_ns=steady_ns,
        steady_tps=_tps(sent_ns, tokens, steady_ns),
        steady_chunks=int(((sent_ns >= steady_ns[0]) & (sent_ns < steady_ns[1])).sum()),
        in_flight=busy_ns / (steady_ns[1] - steady_ns[0]),
        tpot_s=float(tpot_s.mean()),
        token_itl_p99_s=float(np.percentile(itl_s, 99)),
        request_itl_p99_s=float(np.percentile(tpot_s, 99)),
        ttft_p50_s=float(np.median(ttft_s)),
        chunks=len(sent_ns),
    )


def _tps(sent_ns: NDArray[np.int64], tokens: NDArray[np.int64], window_ns: tuple[int, int]) -> float:
    """Tokens sent inside an interval over its length."""
    inside = (sent_ns >= window_ns[0]) & (sent_ns < window_ns[1])
    return float(tokens[inside].sum() / (window_ns[1] - window_ns[0]) * 1e9)


def _overlap_ns(record: dict[str, Any], window_ns: tuple[int, int]) -> int:
    """How long a request was in flight inside an interval."""
    return max(0, min(record["sent_ns"][-1], window_ns[1]) - max(record["received_ns"], window_ns[0]))
