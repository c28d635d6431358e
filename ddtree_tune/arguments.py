"""The command line's arguments, and what becomes of an error; light, so that help comes at once."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Route
from ddtree_tune.core.errors import EXIT_INTERRUPTED, SpecError, TuneError

if TYPE_CHECKING:
    from collections.abc import Callable


API_KEY = "DDTREE_TUNE_API_KEY"
"""Variable that holds the bearer token of a server that wants one; never a flag, for flags are seen by all."""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``run``."""
    parser.add_argument("spec", type=Path, help="YAML of the sweep, as in search_spaces/")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder for the results (results)")
    add_output_arguments(parser)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how a sweep tells what it does."""
    parser.add_argument("--quiet", action="store_true", help="print the answer only")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line: every event, then the answer")


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``bench``."""
    parser.epilog = f"A server's bearer token is read from the variable {API_KEY}."
    parser.add_argument("--base-url", required=True, help="of the server, as in http://127.0.0.1:30000")
    parser.add_argument("--model", help="served name (the only one that the server lists)")
    parser.add_argument("--contexts", required=True, help="prompt lengths in tokens, as in 60,1024")
    parser.add_argument("--concurrencies", help="requests in flight of closed loops, as in 1,8")
    parser.add_argument("--rates", help="requests per second of open loops with Poisson arrivals, as in 0.5,2")
    parser.add_argument("--output-tokens", type=int, default=256, help="tokens of every reply (256)")
    parser.add_argument(
        "--ends", choices=["fixed", "natural"], default="fixed", help="equal work, or the model's own ends"
    )
    parser.add_argument("--temperature", type=float, help="of the requests (0 with fixed ends, 1.0 with natural ones)")
    parser.add_argument("--top-p", type=float, help="of the requests (1.0 with fixed ends, 0.95 with natural ones)")
    parser.add_argument("--window-s", type=float, default=30.0, help="least measured seconds of a repeat (30)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each cell, interleaved (3)")
    parser.add_argument("--families", default="code,maths,chat", help="what is asked, in turn (code,maths,chat)")
    parser.add_argument("--prompts", help="JSONL of prompts, or folder of texts (shipped questions over real text)")
    parser.add_argument("--processes", type=int, help="load processes (one per 64 requests in flight, as cores allow)")
    parser.add_argument("--route", choices=[route.value for route in Route], help="door to take (the better one)")
    parser.add_argument("--template", help="folder with the model's chat template, for /generate")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts (0)")
    parser.add_argument("--stall-s", type=float, default=60.0, help="no token for so long is a hang (60)")
    parser.add_argument("--no-ray", action="store_true", help="send the load from plain processes")
    parser.add_argument("--out", type=Path, required=True, help="new folder for the tables")
    parser.add_argument("--json", type=Path, help="file for a JSON list with one object per cell")
    parser.add_argument("--quiet", action="store_true", help="print the table only")


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``trace``."""
    parser.add_argument("spec", type=Path, help="YAML of a sweep on the built-in engine; its prompts are traced")
    parser.add_argument("--out", type=Path, required=True, help="file for the trace; packed if it ends with .gz")
    parser.add_argument(
        "--window", type=_window, default=None, help="last positions the drafter attends to, or none (none)"
    )
    parser.add_argument("--topk", type=_positive, default=8, help="candidates to keep of each position (8)")
    parser.add_argument("--requests", type=_positive, default=4, help="of each cell of the load matrix (4)")


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``replay``."""
    parser.add_argument("trace", type=Path, help="JSON lines as docs/replay.md has them, or the same with .gz")
    parser.add_argument("--budgets", type=_sizes, help="nodes of the tree, as in 4,8,16 (usual ones up to 64)")
    parser.add_argument("--topks", type=_sizes, help="candidates per position, as in 1,2,4 (usual ones that it holds)")
    parser.add_argument("--results", type=Path, help="results folder of a sweep: foretell tok/s from its step times")
    parser.add_argument("--json", type=Path, help="file for the same as JSON")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, but got {text!r}")
    return int(text)


def _window(text: str) -> int | None:
    return None if text == "none" else _positive(text)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def guarded(command: Callable[[], int]) -> int:
    """Run a command; turn our errors into one sentence and an exit code."""
    try:
        return command()
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    except TuneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED
