"""A scheduler child: loads, captures, holds "GPU memory", and dies as it is told.

Run by path, with one JSON argument; it needs the standard library alone, so that it starts at once.
It says ``ready`` on its standard output and takes how to die from its standard input.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.sglang import log


def hold_memory(linger_s: float) -> None:
    """Say in ``FAKE_GPU_DIR`` that this process holds memory."""
    folder = os.environ.get("FAKE_GPU_DIR")
    if folder is None:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"{os.getpid()}.json"
    path.with_suffix(".part").write_text(json.dumps({"gpu": 0, "mib": 1000, "linger_s": linger_s}))
    path.with_suffix(".part").rename(path)


def fail(error: str, *, starting: bool) -> None:
    """End as a scheduler does that met an exception."""
    log.say(log.failure(error, starting=starting))
    os.kill(os.getppid(), signal.SIGQUIT)
    sys.exit(0)  # the real one catches its exception, and so ends well


def load(told: dict) -> None:
    """From the first line to "ready"; the first rank alone writes."""
    is_first, startup, rank = told["index"] == 0, told["startup"], told["rank"]
    if is_first:
        log.say("Init torch distributed begin.", rank)
        log.say("Init torch distributed ends. elapsed=0.02 s, mem usage=0.09 GB", rank)
        log.say("Load weight begin. avail mem=139.13 GB", rank)
    if startup == "hang":
        time.sleep(3600)
    time.sleep(told["load_s"] / 2)
    if is_first and startup == "crash":
        fail(log.SHARDS, starting=True)
    hold_memory(told["memory_lingers_s"])
    if is_first and startup == "oom":
        fail(log.OOM, starting=True)
    time.sleep(told["load_s"] / 2)
    if not is_first:
        time.sleep(told["capture_s"])
        return
    log.raw(log.bar("Multi-thread loading shards", 1))
    took = told["load_s"]
    log.say(
        f"Load weight end. elapsed={took:.2f} s, type=Qwen3ForCausalLM, avail mem=139.10 GB, mem usage=0.02 GB.", rank
    )
    if told["draft_line"]:
        log.say("Load weight begin. avail mem=139.10 GB", rank)
        log.raw(log.bar("Multi-thread loading shards", 1))
        log.say("Load weight end. elapsed=0.02 s, type=DFlashDraftModel, avail mem=139.10 GB, mem usage=0.00 GB.", rank)
        log.say(told["draft_line"], rank)
    log.say(
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {told['tokens']}, K size: 15.62 GB, V size: 15.62 GB",
        rank,
    )
    log.say("Memory pool end. avail mem=107.75 GB", rank)
    for what, width in told["captures"]:
        sizes = told["sizes"]
        log.say(
            f"Capture {what} CUDA graph begin. backend=full, num_tokens_per_req={width}, bs={sizes}, "
            "avail mem=96.55 GB",
            rank,
        )
        time.sleep(told["capture_s"] / len(told["captures"]))
        if startup == "capture_crash":
            fail(log.CAPTURE, starting=True)
        log.raw(log.capture_bar(sizes))
        took = told["capture_s"]
        log.say(f"Capture {what} CUDA graph end. elapsed={took:.2f} s, mem usage=0.16 GB, avail mem=96.39 GB.", rank)
    log.say(told["ready_line"], rank)


def main() -> None:
    """Live until told to end."""
    told = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if told["stubborn"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # the real ones, too, die with their parent
    listener = socket.create_server(("127.0.0.1", told["nccl_port"])) if told["nccl_port"] else None
    load(told)
    print("ready", flush=True)
    order = sys.stdin.readline().strip()
    if order in {"oom", "scheduler"}:
        fail(log.OOM if order == "oom" else log.ILLEGAL, starting=False)
    while told["stubborn"]:
        time.sleep(3600)
    if listener is not None:
        listener.close()


if __name__ == "__main__":
    main()
