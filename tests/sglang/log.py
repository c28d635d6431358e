"""The log lines of a real server, as 0.5.17 wrote them on an H200."""

from __future__ import annotations

import sys
from datetime import datetime

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
    "139.80 GiB of which 11.94 GiB is free. Including non-PyTorch memory, this process has 127.85 GiB memory in use."
)
ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
SHARDS = "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1"
CAPTURE = """Exception: Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)
3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose 
"""  # noqa: W291  # the real text ends so
FRAME = """Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line {line}, in run_scheduler_process
    {call}
{error}
"""
LAUNCH_SIGQUIT = "Received sigquit from a child process. It usually means the child failed."
SIGQUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
SIGTERM = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
DIAGNOSTICS = "Sleeping 5 seconds before crash diagnostics to let GPU activity settle."
NO_SCHEDULER = "No live scheduler processes found; skipping py-spy and CUDA coredump."
READY = "The server is fired up and ready to roll!"


def say(text: str, rank: str = "") -> None:
    """One stamped line."""
    raw(f"[{datetime.now():%Y-%m-%d %H:%M:%S}{rank}] {text}\n")  # noqa: DTZ005  # the real one says local time


def raw(text: str) -> None:
    """Text without a stamp, at once: one write, for several processes share the log."""
    sys.stderr.write(text)
    sys.stderr.flush()


def failure(error: str, *, starting: bool) -> str:
    """What a scheduler says before it asks its parent to end."""
    call = "scheduler = Scheduler(" if starting else "scheduler.run_event_loop()"
    return f"Scheduler hit an exception: {FRAME.format(line=4890 if starting else 4947, call=call, error=error)}"


def bar(what: str, steps: int) -> str:
    """A tqdm line: every state of it, carriage returns between."""
    states = [f"{what}:   0% Completed | 0/{steps} [00:00<?, ?it/s]"]
    states += [
        f"{what}: {100 * done // steps:3d}% Completed | {done}/{steps} [00:00<00:00, 252.00it/s]"
        for done in range(1, steps + 1)
    ]
    return "\r".join(states) + "\n"


def capture_bar(sizes: list[int]) -> str:
    """The tqdm line of a graph capture, largest batch first."""
    states = [f"  0%|          | 0/{len(sizes)} [00:00<?, ?it/s]"]
    for done, size in enumerate(reversed(sizes)):
        label = f"Capturing batches (bs={size} avail_mem=96.47 GB)"
        states += [
            f"{label}: {100 * at // len(sizes):3d}%|{'█' * (10 * at // len(sizes)):<10}| {at}/{len(sizes)} "
            f"[00:00<00:00, 12.17it/s]"
            for at in (done, done + 1)
        ]
    return "\r".join(states) + "\n"
