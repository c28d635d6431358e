"""One load with this package's own client, as a process of its own: prints what it reports as JSON.

The other tools of ``compare.py`` are processes as well, so CPU time is taken in the same way.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.node import loops
from ddtree_tune.node.loadgen import run_cell
from ddtree_tune.node.prompts import Prompt

if TYPE_CHECKING:
    from ddtree_tune.core.trace import Phase

CONTEXT = 60


async def cut(phase: Phase, index: int) -> Prompt:
    """A prompt like no other; the server does not read it."""
    return Prompt(" ".join(f"{phase}{index}x{word}" for word in range(CONTEXT)), "words", CONTEXT)


def main() -> None:
    """Measure one cell and print it."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--base-url", required=True)
    command.add_argument("--model", required=True)
    command.add_argument("--streams", type=int, required=True)
    command.add_argument("--output-tokens", type=int, required=True)
    command.add_argument("--window-s", type=float, required=True)
    asked = command.parse_args()
    cell = Cell(CONTEXT, asked.output_tokens, ClosedLoop(asked.streams), asked.window_s)
    run = loops.run(run_cell(Endpoint(asked.base_url, asked.model), cell, cut, repeat=0))
    if run.window is None:
        raise SystemExit(f"the window must open, but it did not at {asked.base_url}; see the server")
    seen = measure([run])
    said = {
        "start_ns": run.window.start_ns,
        "end_ns": run.window.end_ns,
        "output_tps": seen.output_tps,
        "tpot_s": seen.tpot_s.mean,
        "itl_p99_s": seen.itl_s.p99,
        "ttft_p50_s": seen.ttft_s.p50,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
