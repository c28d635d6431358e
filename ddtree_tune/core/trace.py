"""What one request and one cell really saw: integers on one clock, nothing derived.

Every metric can be recomputed from these. Times are ``time.perf_counter_ns`` of the process that
sent the requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtree_tune.core.gpu import GpuUse
    from ddtree_tune.core.workload import Cell


class RequestError(StrEnum):
    """How a request failed; each is counted, none is averaged in or retried silently."""

    CONNECT = "connect"
    """Nobody accepted the connection."""
    CLOSED = "closed"
    """The connection ended inside the reply."""
    HTTP_4XX = "http_4xx"
    HTTP_429 = "http_429"
    HTTP_5XX = "http_5xx"
    HTTP_503 = "http_503"
    STREAM_ERROR = "stream_error"
    """An error object inside a 200 stream."""
    NO_END = "no_end"
    """The stream ended without its end marker."""
    EMPTY = "empty"
    """A 200 reply without any text."""
    STALLED = "stalled"
    """No byte for longer than the stall limit."""
    TIMEOUT = "timeout"
    """The whole request outlasted its limit."""
    BAD_REPLY = "bad_reply"
    """The reply is not what the API says."""
    CANCELLED = "cancelled"
    """We ended it ourselves: the window was closed."""


class Phase(StrEnum):
    """Which part of a cell a request was sent in."""

    WARMUP = "warmup"
    WINDOW = "window"
    """Sent after the warm-up; which of its tokens count is decided by time."""


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """One request's speculation as the server counted it."""

    verify_steps: int
    """Verify forwards (SGLang ``spec_verify_ct``)."""
    histogram: tuple[int, ...]
    """Index: drafted tokens accepted in a step, bonus not included; value: steps."""


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request as the client saw it."""

    request_id: str
    phase: Phase
    prompt_sha: str
    """First 16 hex digits of the prompt's sha256: equal work can be proved."""
    prompt_family: str
    sent_ns: int
    first_byte_ns: int | None
    """First body byte; None if none came."""
    chunk_ns: tuple[int, ...]
    """Arrival of each chunk with new text or reasoning text."""
    chunk_tokens: tuple[int, ...] | None
    """Cumulative completion tokens at each of those chunks; None if the server does not say."""
    end_ns: int
    """The end marker's arrival, or the failure's time."""
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    """From usage or meta_info; None if the server did not say. Never counted from chunks."""
    finish_reason: str | None
    spec: SpecCounters | None
    text: str
    """Answer text."""
    reasoning: str
    """Reasoning text where the server splits it off."""
    error: RequestError | None = None
    error_detail: str | None = None
    error_at_chunk: int | None = None
    status_code: int | None = None
    attempt: int = 1

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Window:
    """The measured interval of one repeat: after the warm-up, while all slots were busy."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class NetworkRoute:
    """The way of a cell's requests over the network, as the kernel of the load's machine routes it."""

    from_host: str
    """Name of the machine that sent the load."""
    from_ip: str
    to_host: str
    """Name of the server's machine; its address where the name is not known."""
    to_ip: str
    clock_ahead_ns: int = 0
    """The load's clock minus the clock of the server's machine; 0 where the load ran there."""
    clock_error_ns: int = 0
    """Half of the round trip in which the clocks were compared: the difference is known no better."""

    @property
    def loopback(self) -> bool:
        """Whether the requests never left the machine."""
        return self.to_ip in {self.from_ip, "::1"} or self.to_ip.startswith("127.")


@dataclass(frozen=True, slots=True)
class CellRun:
    """One repeat of one cell: raw requests and how well the client kept up."""

    cell: Cell
    repeat: int
    window: Window | None
    """None when the slots were never all busy."""
    traces: tuple[RequestTrace, ...]
    lag_ns: tuple[int, ...] = ()
    """Event-loop lag samples of the client while the window was open."""
    wall_utc: str = ""
    """Start of the cell for people, ISO 8601 in UTC."""
    prompts_sha: str = ""
    """sha256 of the text that the prompts were cut from."""
    gpu: GpuUse | None = None
    """What the node's GPUs did inside the window; None if that was not metered."""
    gpu_missing: str = ""
    """Why there is no ``gpu``; empty if there is."""
    route: NetworkRoute | None = None
    """From which machine to which the requests went; None if that was not asked."""
