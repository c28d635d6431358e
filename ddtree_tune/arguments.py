"""The command line's arguments, and what becomes of an error; light, so that help comes at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Route
from ddtree_tune.core.errors import EXIT_INTERRUPTED, SpecError, TuneError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


API_KEY = "DDTREE_TUNE_API_KEY"
"""Variable that holds the bearer token of a server that wants one; never a flag, for flags are seen by all."""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``run``."""
    parser.add_argument("spec", type=Path, help="YAML of the sweep, as in search_spaces/")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder for the results (results)")
    parser.add_argument("--quiet", action="store_true", help="print the answer only")


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
