"""Measure our plugin for SGLang on the GPUs of one machine: ``python -m benchmarks.sglang run --out DIR``.

run        start servers, measure, keep rows.jsonl and the servers' logs
reference  make the prompts and their reference again, on the CPU
bfloat16   what rounding does to acceptance, on the CPU
grow       make the shipped pair as large as a real one, without changing what it says
report     the tables of the README from kept rows
foretold   what the search foretells of the trees from the baselines alone
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from dataclasses import fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sglang.grow import Sizes, grow
from benchmarks.sglang.measure import PARTS, Asked, Gpu
from benchmarks.sglang.rows import Kept, Machine, Rows
from benchmarks.sglang.serving import CONCURRENCIES, Clock, Where
from benchmarks.sglang.settings import REFUSED, STOCK, TIMED, TRACED, TREES, Setting, deal, pick
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.core.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BYTES = 2
"""Of a parameter in bfloat16."""


def main() -> int:
    """Do what is asked."""
    asked = _command().parse_args()
    return int(asked.act(asked))


# What one of these needs another may lack: the built-in engine, the GPU, a package that draws.


def _reference(_: argparse.Namespace) -> int:
    from benchmarks.sglang import reference  # noqa: PLC0415

    reference.make()
    return 0


def _bfloat16(_: argparse.Namespace) -> int:
    from benchmarks.sglang import bfloat16  # noqa: PLC0415

    for line in bfloat16.compare():
        print(line, flush=True)
    return 0


def _report(asked: argparse.Namespace) -> int:
    from benchmarks.sglang import report  # noqa: PLC0415

    exact: report.Judge | None = None
    if asked.float32:
        from benchmarks.sglang.float32 import scores  # noqa: PLC0415

        exact = scores
    for line in report.lines(Kept.read(asked.rows), exact):
        print(line)
    if asked.plot:
        from benchmarks.sglang.plot import draw  # noqa: PLC0415

        draw(Kept.read(asked.rows), asked.plot)
    return 0


def _foretold(asked: argparse.Namespace) -> int:
    from benchmarks.sglang.foretold import foretold  # noqa: PLC0415

    for line in foretold(Kept.read(asked.rows)):
        print(line)
    return 0


def _grow(asked: argparse.Namespace) -> int:
    try:
        grow(asked.out, Sizes(**{field.name: getattr(asked, field.name) for field in fields(Sizes)}))
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def run(asked: argparse.Namespace) -> int:
    """Measure on all GPUs at once."""
    from benchmarks.sglang.prompts import read  # noqa: PLC0415

    clock = Clock(asked.budget_s)
    signal.signal(signal.SIGTERM, lambda *_: clock.cut())
    asked.out.mkdir(parents=True, exist_ok=True)
    rows = Rows(asked.out / "rows.jsonl")
    rows.add(machine(asked.pair, asked.tp))
    stock = asked.only == "dflash"
    what = Asked(
        parts=tuple(asked.parts.split(",")) if asked.parts else ("lossless",) if stock else PARTS,
        bursts=asked.bursts if asked.bursts is not None else 10 if stock else 1,
        rounds=asked.rounds,
        window_s=asked.window_s,
        at_once=asked.at_once,
        start_s=min(asked.start_s, asked.budget_s),
        alone=tuple(asked.alone.split(",")),
        concurrencies=tuple(map(int, asked.concurrencies.split(","))),
    )
    some = (*asked.trees, *asked.timed, *([TRACED] if asked.traced else []))
    hands: list[list[Setting]] = [list(STOCK)] if stock else deal(asked.gpus // asked.tp, some)
    if "check" in what.parts:
        hands[-1] += REFUSED[: asked.refused]
    prompts = read(asked.prompts)
    with tempfile.TemporaryDirectory(prefix="bench-sglang-") as folder:
        runs = []
        for at, hand in enumerate(hands):
            scratch = Path(folder, str(at))
            scratch.mkdir()
            args = ("--mem-fraction-static", str(asked.mem_fraction), "--max-total-tokens", str(asked.max_tokens))
            where = Where(
                asked.first_gpu + at * asked.tp, tuple(asked.command.split()), scratch, asked.pair, asked.tp,
                (*args, *asked.args.split()),
            )  # fmt: skip
            runs.append(Gpu(hand, where, what, prompts=prompts, rows=rows, clock=clock))
        threads = [threading.Thread(target=one.run) for one in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tarfile.open(asked.out / "logs.tar.gz", "w:gz") as archive:
            for log in sorted(Path(folder).glob("*/log-*.txt")):
                archive.add(log, log.name)
    print(f"{asked.out / 'rows.jsonl'}; {clock.left_s:.0f} s left")
    return 0


def machine(pair: Path, tp: int) -> Machine:
    """What this runs on, and what runs."""
    gpus = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return Machine(
        gpu=(gpus or "none").strip().replace("\n", "; "),
        cpus=os.cpu_count() or 0,
        python=platform.python_version(),
        torch=_version("torch"),
        utc=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_said("git", "rev-parse", "--short", "HEAD"),
        pair=describe(pair, tp),
    )


def describe(pair: Path, tp: int) -> str:
    """A pair by its folder's name and its target's size."""
    name = "shipped pair" if pair == PAIR else pair.name.replace("-", " ")
    parameters = sum(file.stat().st_size for file in (pair / "target").glob("*.safetensors")) / _BYTES
    size = f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"
    return f"{name}, {size} parameters" + (f", each server on {tp} GPUs" if tp > 1 else "")


def _said(*argv: str) -> str | None:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _command() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(prog="benchmarks.sglang", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parts = command.add_subparsers(dest="do", required=True)
    parts.add_parser("reference").set_defaults(act=_reference)
    parts.add_parser("bfloat16").set_defaults(act=_bfloat16)
    table = parts.add_parser("report")
    table.set_defaults(act=_report)
    table.add_argument("rows", type=Path, nargs="+", help="rows.jsonl of one or more runs, compressed or not")
    table.add_argument("--float32", action="store_true", help="judge replies by the target in float32 as well")
    table.add_argument("--plot", type=Path, help="an SVG of the speeds to write")
    told = parts.add_parser("foretold")
    told.set_defaults(act=_foretold)
    told.add_argument("rows", type=Path, nargs="+")
    one = parts.add_parser("run")
    one.set_defaults(act=run)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--budget-s", type=float, default=540.0, help="all of it, servers' ends included")
    one.add_argument("--only", choices=["dflash"], help="stock SGLang alone: no plugin, no tree")
    one.add_argument("--parts", help=f"of {','.join(PARTS)}; all where absent, lossless with --only dflash")
    one.add_argument(
        "--pair", type=Path, default=PAIR, help="a folder with target and draft; the shipped one if absent"
    )
    one.add_argument("--gpus", type=int, default=1)
    one.add_argument("--first-gpu", type=int, default=0)
    one.add_argument("--tp", type=int, default=1, help="GPUs of each server")
    one.add_argument("--mem-fraction", type=float, default=0.6, help="of what is free at a server's start; it must "
                     "leave room for what the servers beside it take meanwhile")  # fmt: skip
    one.add_argument("--max-tokens", type=int, default=65536, help="of each server's cache")
    one.add_argument("--trees", type=_some(TREES), default=TREES, help="so many of the trees, the most telling first, "
                     "or a list such as 16/4,64/8")  # fmt: skip
    one.add_argument("--timed", type=_some(TIMED), default=TIMED, help="servers that write down their steps, likewise")
    one.add_argument("--traced", action="store_true", help="one more server, which writes down what is drafted")
    one.add_argument("--refused", type=int, default=len(REFUSED), help="so many that must not start, with part check")
    one.add_argument("--prompts", type=int, default=None, help="so many of the prompts; all where absent")
    one.add_argument("--bursts", type=int, default=None, help="times that every 16 prompts are sent at once")
    one.add_argument("--alone", default="none,chain,chain eager,16/4,8/4", help="settings also asked one by one")
    one.add_argument("--rounds", type=int, default=2)
    one.add_argument("--window-s", type=float, default=3.0)
    one.add_argument("--concurrencies", default=",".join(map(str, CONCURRENCIES)))
    one.add_argument("--at-once", type=int, default=8, help="servers that start at the same time, per GPU")
    one.add_argument("--start-s", type=float, default=150.0, help="launch to ready, at most")
    one.add_argument("--command", default="python -m sglang.launch_server")
    one.add_argument("--args", default="", help="more arguments of every server, in one word")
    grown = parts.add_parser("grow")
    grown.set_defaults(act=_grow)
    grown.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    for field in fields(Sizes):
        grown.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    return command


def _some(known: Sequence[Setting]) -> Callable[[str], tuple[Setting, ...]]:
    def asked(text: str) -> tuple[Setting, ...]:
        try:
            return pick(known, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return asked


if __name__ == "__main__":
    sys.exit(main())
