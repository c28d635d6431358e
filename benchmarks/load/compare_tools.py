"""Each load tool of the comparison: the command that runs a load, and where it says what it measured.

Every tool is told to count by the server's usage where it can and to show no progress, and is
otherwise left as it comes. Nothing of a tool is changed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from benchmarks.load.emitter import MODEL, PROMPT_TOKENS
from ddtree_tune.builtin.options import PAIR

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTPUT_TOKENS = 256
TOKENIZER = str(PAIR / "target")


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop of some waves of requests, after a wave of warm-up where the tool has one."""

    streams: int
    waves: int
    wave_s: float
    """How long a wave takes if nothing is late."""

    @property
    def requests(self) -> int:
        """Measured ones."""
        return self.streams * self.waves


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool reports of one load."""

    output_tps: float
    tpot_s: float
    """Its mean time per token after the first, whatever it calls it."""
    itl_p99_s: float
    itl_of_requests: bool
    """Whether that percentile is over the means of requests instead of over tokens."""
    ttft_p50_s: float
    window_ns: tuple[int, int] | None = None
    """Its measured interval, where it says so; else first request to last chunk."""


class Tool(Protocol):
    """One load tool."""

    name: str
    package: str
    """Its distribution's name."""
    environment: ClassVar[Mapping[str, str]]

    @property
    def python(self) -> Path:
        """Of the environment that it is installed in."""

    def argv(self, load: Load, base_url: str, folder: Path) -> list[str]:
        """The command line."""

    def read(self, folder: Path) -> Said:
        """What it left in the folder; its standard output is there as ``stdout``."""


class Ours:
    """The load generator of this package, over its own Python interface."""

    name = package = "ddtree-tune"
    python = Path(sys.executable)
    environment: ClassVar[Mapping[str, str]] = {}

    def argv(self, load: Load, base_url: str, folder: Path) -> list[str]:
        """See ``Tool``; it brings its own warm-up."""
        del folder
        command = [str(self.python), "-m", "benchmarks.load.compare_client", "--base-url", base_url, "--model", MODEL]
        command += ["--streams", str(load.streams), "--output-tokens", str(OUTPUT_TOKENS)]
        return [*command, "--window-s", str(load.waves * load.wave_s)]

    def read(self, folder: Path) -> Said:
        """See ``Tool``."""
        said = json.loads((folder / "stdout").read_text())
        window_ns = (said.pop("start_ns"), said.pop("end_ns"))
        return Said(**said, itl_of_requests=False, window_ns=window_ns)


@dataclass(frozen=True)
class AiPerf:
    """NVIDIA's aiperf, with the server's token counts for every chunk."""

    python: Path
    name = package = "aiperf"
    # When told to be offline it takes a tokenizer's folder for a name of the hub.
    environment: ClassVar[Mapping[str, str]] = {"HF_HUB_OFFLINE": ""}

    def argv(self, load: Load, base_url: str, folder: Path) -> list[str]:
        """See ``Tool``."""
        command = [str(self.python.with_name("aiperf")), "profile", "--model", MODEL, "--url", base_url]
        command += ["--endpoint-type", "chat", "--streaming", "--tokenizer", TOKENIZER]
        command += ["--use-server-token-count", "--per-chunk-usage", "--extra-inputs", "ignore_eos:true"]
        command += ["--concurrency", str(load.streams), "--warmup-request-count", str(load.streams)]
        command += ["--request-count", str(load.requests), "--isl", str(PROMPT_TOKENS), "--osl", str(OUTPUT_TOKENS)]
        command += ["--ui", "none", "--no-server-metrics", "--no-gpu-telemetry", "--output-artifact-dir", str(folder)]
        return command

    def read(self, folder: Path) -> Said:
        """See ``Tool``; latencies are in milliseconds."""
        said = json.loads((folder / "profile_export_aiperf.json").read_text())
        per_token = said["inter_token_latency"]
        return Said(
            output_tps=said["output_token_throughput"]["avg"],
            tpot_s=per_token["avg"] / 1e3,
            itl_p99_s=per_token["p99"] / 1e3,
            itl_of_requests=True,
            ttft_p50_s=said["time_to_first_token"]["p50"] / 1e3,
        )


@dataclass(frozen=True)
class GuideLlm:
    """guidellm; it asks for the server's token counts by itself."""

    python: Path
    name = package = "guidellm"
    environment: ClassVar[Mapping[str, str]] = {"HF_HUB_OFFLINE": "1"}

    def argv(self, load: Load, base_url: str, folder: Path) -> list[str]:
        """See ``Tool``; without a warm-up, for what it can leave out are requests of the measured ones."""
        command = [str(self.python.with_name("guidellm")), "run", "--disable-console"]
        command += ["--backend", f"kind=openai_http,target={base_url},model={MODEL}"]
        command += ["--profile", f"kind=concurrent,streams={load.streams}"]
        command += ["--constraint", f"kind=max_requests,count={load.requests}"]
        command += ["--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"]
        command += ["--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}"]
        return [*command, "--output", f"kind=json,path={folder / 'report.json'}"]

    def read(self, folder: Path) -> Said:
        """See ``Tool``; its TPOT is the whole time over all tokens, its ITL what others call TPOT."""
        report = json.loads((folder / "report.json").read_text())
        said = {name: of["total"] for name, of in report["benchmarks"][0]["metrics"].items() if of and "total" in of}
        per_token = said["inter_token_latency_ms"]
        return Said(
            output_tps=said["output_tokens_per_second"]["mean"],
            tpot_s=per_token["mean"] / 1e3,
            itl_p99_s=per_token["percentiles"]["p99"] / 1e3,
            itl_of_requests=True,
            ttft_p50_s=said["time_to_first_token_ms"]["median"] / 1e3,
        )


@dataclass(frozen=True)
class Sglang:
    """SGLang's ``bench_serving``, where it lives now."""

    python: Path
    name = "sglang bench_serving"
    package = "sglang"
    environment: ClassVar[Mapping[str, str]] = {"HF_HUB_OFFLINE": "1"}

    def argv(self, load: Load, base_url: str, folder: Path) -> list[str]:
        """See ``Tool``."""
        command = [str(self.python), "-m", "sglang.benchmark.serving", "--backend", "sglang-oai-chat"]
        command += ["--base-url", base_url, "--model", TOKENIZER, "--served-model-name", MODEL]
        command += ["--dataset-name", "random-ids", "--random-range-ratio", "1.0"]
        command += ["--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS)]
        command += ["--num-prompts", str(load.requests), "--max-concurrency", str(load.streams)]
        command += ["--warmup-requests", str(load.streams), "--disable-tqdm"]
        return [*command, "--output-file", str(folder / "report.jsonl")]

    def read(self, folder: Path) -> Said:
        """See ``Tool``."""
        said = json.loads((folder / "report.jsonl").read_text())
        return Said(
            output_tps=said["output_throughput"],
            tpot_s=said["mean_tpot_ms"] / 1e3,
            itl_p99_s=said["p99_itl_ms"] / 1e3,
            itl_of_requests=False,
            ttft_p50_s=said["median_ttft_ms"] / 1e3,
        )
