"""The command line of the embedded engine; reads no file and imports no NumPy.

The number of BLAS threads must be set before NumPy is loaded, so the options are parsed first.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune.core.engine import Algorithm

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIR = Path(__file__).parent / "pair"
"""The target and drafter that ship with the package."""
PROGRAM = "python -m ddtree_tune.builtin"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked on the command line."""

    model: Path
    draft_model: Path
    algorithm: Algorithm
    budget: int
    topk: int
    window: int | None
    block_size: int | None
    """None is the drafter's own."""
    max_running_requests: int
    chunked_prefill_size: int
    host: str
    port: int
    served_model_name: str
    threads: int
    max_model_len: int | None
    """None is the model's own."""
    stream_interval: int


def fix_threads(count: int) -> None:
    """Let BLAS use so many threads; it reads these variables once, when NumPy is loaded."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ[variable] = str(count)


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    command = argparse.ArgumentParser(
        prog=PROGRAM, description="Serve a small model with DFlash and DDTree on the CPU."
    )
    command.add_argument("--model", type=Path, default=PAIR / "target", help="folder of the target (default: shipped)")
    command.add_argument(
        "--draft-model", type=Path, default=PAIR / "draft", help="folder of its DFlash drafter (default: shipped)"
    )
    command.add_argument(
        "--algorithm", type=_algorithm, default=Algorithm.TREE, help="none, chain or tree (default: tree)"
    )
    command.add_argument("--budget", type=_positive, default=8, help="nodes of the draft tree (default: 8)")
    command.add_argument("--topk", type=_positive, default=4, help="candidates per position (default: 4)")
    command.add_argument(
        "--window", type=_window, default=None, help="last positions the drafter attends to, or none (default: none)"
    )
    command.add_argument(
        "--block-size", type=_block, default=None, help="positions drafted at once, at most the drafter's"
    )
    command.add_argument("--max-running-requests", type=_positive, default=8, help="largest batch (default: 8)")
    command.add_argument(
        "--chunked-prefill-size", type=_positive, default=256, help="prompt tokens per pass (default: 256)"
    )
    command.add_argument("--host", default="127.0.0.1")
    command.add_argument("--port", type=_port, required=True)
    command.add_argument("--served-model-name", required=True, help="the only model name that requests may use")
    command.add_argument("--threads", type=_positive, default=1, help="BLAS threads (default: 1)")
    command.add_argument("--max-model-len", type=_positive, default=None, help="most tokens of prompt and reply")
    command.add_argument(
        "--stream-interval", type=_positive, default=1, help="fewest new tokens of a chunk (default: 1)"
    )
    return command


def parse(argv: Sequence[str]) -> Options:
    """Read the command line; a wrong one ends the process with code 2 and one sentence."""
    return Options(**vars(parser().parse_args(argv)))


def _algorithm(text: str) -> Algorithm:
    known = (Algorithm.NONE, Algorithm.CHAIN, Algorithm.TREE)
    if text not in known:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(known)}, but got {text!r}")
    return Algorithm(text)


def _positive(text: str) -> int:
    return _at_least(text, 1)


def _block(text: str) -> int:
    return _at_least(text, 2)


def _port(text: str) -> int:
    value = _at_least(text, 0)
    if value > 65535:
        raise argparse.ArgumentTypeError(f"must be at most 65535, but got {value}")
    return value


def _window(text: str) -> int | None:
    return None if text == "none" else _at_least(text, 1)


def _at_least(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, but got {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, but got {value}")
    return value
