"""The same load through this package's client and through other load tools, against a server that knows the truth.

    python -m benchmarks.load.compare --aiperf ENV --guidellm ENV --sglang ENV

Each tool is installed in a virtual environment of its own (../README.md says how) and runs as a
process; a tool without one is left out. Every run gets an emitter of its own. Prints a Markdown
table: what a tool reports beside what the emitter sent at that time, and the CPU time of the tool's
whole process tree, user and system, per chunk that the emitter sent: once in the steady part, where
nothing starts or is summed up, and once over the whole run with its warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.compare_cpu import Watched, watch
from benchmarks.load.compare_tools import OUTPUT_TOKENS, AiPerf, GuideLlm, Load, Ours, Said, Sglang, Tool
from benchmarks.load.compare_truth import Truth, truth_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKENS_PER_CHUNK = 4
GAP_S = 0.02
OTHERS: dict[str, Callable[[Path], Tool]] = {"aiperf": AiPerf, "guidellm": GuideLlm, "sglang": Sglang}
HEAD = (
    "tool",
    "streams",
    "in flight",
    "says tok/s",
    "sent in its span",
    "error",
    "sent in steady part",
    "error",
    "TPOT ms (sent)",
    "ITL p99 ms (sent)",
    "TTFT p50 ms (sent)",
    "CPU us/chunk",
    "of the whole run",
    "CPU s",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of one tool."""

    said: Said
    truth: Truth
    cpu: Watched


def run(tool: Tool, load: Load) -> Ran:
    """Run a load with a tool against an emitter of its own."""
    argv = [sys.executable, "-m", "benchmarks.load.emitter"]
    argv += ["--gap-ms", str(GAP_S * 1000), "--tokens", str(TOKENS_PER_CHUNK)]
    with (
        tempfile.TemporaryDirectory() as scratch,
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as emitter,
    ):
        folder = Path(scratch)
        try:
            base_url = f"http://127.0.0.1:{int(emitter.stdout.readline())}"
            environment = os.environ | tool.environment | {"TMPDIR": scratch}  # some leave files behind
            cpu = watch(tool.argv(load, base_url, folder), environment, folder)
            if cpu.exit_code:
                last = "".join((folder / name).read_text()[-1500:] for name in ("stdout", "stderr"))
                raise SystemExit(f"{tool.name} must end with 0, but got {cpu.exit_code}; its last words:\n{last}")
            with urllib.request.urlopen(f"{base_url}/truth", timeout=30) as reply:
                records = json.load(reply)["requests"]
        finally:
            emitter.kill()
        said = tool.read(folder)
        return Ran(said, truth_of(records, load.streams, load.requests, said.window_ns), cpu)


def row(tool: Tool, load: Load) -> tuple[str, ...]:
    """Measure one load with one tool."""
    ran = run(tool, load)
    said, truth = ran.said, ran.truth
    steady_s = ran.cpu.between(*truth.steady_ns)
    itl_p99_s = truth.request_itl_p99_s if said.itl_of_requests else truth.token_itl_p99_s
    return (
        tool.name,
        str(load.streams),
        f"{truth.in_flight:.2f}",
        f"{said.output_tps:.0f}",
        f"{truth.span_tps:.0f}",
        f"{said.output_tps / truth.span_tps - 1:+.2%}",
        f"{truth.steady_tps:.0f}",
        f"{said.output_tps / truth.steady_tps - 1:+.2%}",
        f"{said.tpot_s * 1e3:.3f} ({truth.tpot_s * 1e3:.3f})",
        f"{said.itl_p99_s * 1e3:.2f} ({itl_p99_s * 1e3:.2f}){' *' if said.itl_of_requests else ''}",
        f"{said.ttft_p50_s * 1e3:.1f} ({truth.ttft_p50_s * 1e3:.1f})",
        f"{steady_s / truth.steady_chunks * 1e6:.0f}",
        f"{ran.cpu.cpu_s[-1] / truth.chunks * 1e6:.0f}",
        f"{ran.cpu.cpu_s[-1]:.1f}",
    )


def tools(environments: dict[str, Path | None]) -> Iterator[Tool]:
    """Ours, and those whose environment is there; says which are left out."""
    yield Ours()
    for name, environment in environments.items():
        python = (environment or Path(os.devnull)) / "bin" / "python"
        if python.exists():
            yield OTHERS[name](python)
        else:
            print(f"{name} is left out: --{name} must name a virtual environment, but got {environment}.")


def version(tool: Tool) -> str:
    """Name and version of a tool, by its own environment."""
    code = f"from importlib.metadata import version; print(version({tool.package!r}))"
    found = subprocess.run([str(tool.python), "-c", code], capture_output=True, text=True, check=True)
    return f"{tool.package} {found.stdout.strip()}"


def machine() -> str:
    """What it runs on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())
    where = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {model}, {where}, load average {os.getloadavg()[0]:.1f}"


def main() -> None:
    """Measure and print."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in OTHERS:
        command.add_argument(f"--{name}", type=Path, metavar="ENV", help="virtual environment that has it")
    command.add_argument("--streams", type=int, nargs="+", default=[8, 64])
    command.add_argument("--waves", type=int, default=10, help="requests of each stream")
    asked = command.parse_args()
    if asked.waves < 2:
        command.error(f"--waves must be 2 or more, for the first one fills the slots, but got {asked.waves}")
    present = list(tools({name: getattr(asked, name) for name in OTHERS}))
    rate_tps = TOKENS_PER_CHUNK / GAP_S
    print(f"{machine()}; {', '.join(map(version, present))}.")
    print(f"{OUTPUT_TOKENS} tokens a request, {TOKENS_PER_CHUNK} a chunk, {rate_tps:g} tok/s a stream, ", end="")
    print(f"{asked.waves} requests a stream.\n\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    chunks = -(-OUTPUT_TOKENS // TOKENS_PER_CHUNK)
    for streams in asked.streams:
        for tool in present:
            print(f"| {' | '.join(row(tool, Load(streams, asked.waves, (chunks + 1) * GAP_S)))} |", flush=True)
    print("\n\\* over the means of requests, not over tokens")


if __name__ == "__main__":
    main()
