"""SGLang's command line: which build and version knows what, and what each value becomes.

A refusal is what the real one says: argparse's exit 2, or a ValueError that ends the process with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sglang import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.sglang.scenario import Scenario

DEFAULT_CONTEXT = 32768
CHAIN_CAP = 48
"""``max_running_requests`` of a server that speculates and was not told."""
PLAIN_CAP = 4096
GRAPH_MAX_BS = 256
_NUMBERS = {
    "--port": 30000,
    "--max-running-requests": None,
    "--cuda-graph-max-bs-decode": None,
    "--cuda-graph-max-bs-prefill": None,
    "--speculative-num-draft-tokens": None,
    "--speculative-num-steps": None,
    "--speculative-dflash-block-size": None,
    "--speculative-eagle-topk": None,
    "--speculative-draft-window-size": None,
    "--page-size": None,
    "--context-length": None,
    "--decode-log-interval": 40,
    "--random-seed": None,
    "--nccl-port": None,
    "--max-total-tokens": None,
    "--stream-interval": 1,
}
_TEXTS = {
    "--host": "127.0.0.1",
    "--served-model-name": None,
    "--speculative-algorithm": None,
    "--speculative-draft-attention-backend": None,
    "--attention-backend": None,
    "--sampling-backend": None,
    "--reasoning-parser": None,
    "--dist-init-addr": None,
    "--log-level": "info",
    "--log-level-http": None,
    "--dtype": "auto",
    "--kv-cache-dtype": "auto",
    "--tokenizer-path": None,
    "--download-dir": None,
    "--device": "cuda",
}
_SWITCHES = (
    "--disable-overlap-schedule",
    "--enable-metrics",
    "--enable-cache-report",
    "--trust-remote-code",
    "--disable-cuda-graph",
    "--disable-radix-cache",
    "--skip-server-warmup",
    "--sleep-on-idle",
)


class _Deprecated(argparse.Action):
    """An old name, which still works and says so."""

    def __call__(self, parser, namespace, values, option_string=None):
        new = self.metavar
        sys.stderr.write(
            f"\x1b[1;33m'{option_string}' is deprecated and will be removed in a future release. "
            f"Use '{new}' instead.\x1b[0m\n"
        )
        setattr(namespace, self.dest, values)


def parser(scenario: Scenario) -> argparse.ArgumentParser:
    """The command line of one version and build."""
    made = argparse.ArgumentParser(prog="sglang serve")
    made.add_argument("--model-path", "--model", required=True)
    made.add_argument("--speculative-draft-model-path", "--speculative-draft-model")
    made.add_argument("--tensor-parallel-size", "--tp-size", "--tp", dest="tp_size", type=int, default=1)
    made.add_argument("--mem-fraction-static", type=float)
    for flag, default in _NUMBERS.items():
        made.add_argument(flag, type=int, default=default)
    for flag, default in _TEXTS.items():
        made.add_argument(flag, default=default)
    for flag in _SWITCHES:
        made.add_argument(flag, action="store_true")
    if scenario.version == "0.5.17":
        for old, new in (
            ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
            ("--speculative-dflash-draft-window-size", "--speculative-draft-window-size"),
        ):
            dest = new[2:].replace("-", "_")
            made.add_argument(old, type=int, action=_Deprecated, metavar=new, dest=dest, default=argparse.SUPPRESS)
    if scenario.build == "pr29907":
        made.add_argument("--speculative-ddtree-budget", type=int)
    return made


@dataclass(frozen=True)
class Resolved:
    """What a server made of its arguments."""

    argv: tuple[str, ...]
    scenario: Scenario
    args: dict[str, Any]
    """Every argument by its name in ``/server_info``, after what the server itself decides."""
    warnings: tuple[str, ...] = field(default=())

    def __getattr__(self, name: str) -> Any:
        try:
            return self.args[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def speculates(self) -> bool:
        return self.args["speculative_algorithm"] is not None

    @property
    def running_cap(self) -> int:
        """Requests that run at once; more wait."""
        lie = self.scenario.override
        asked = lie.get("max_running_requests") or self.args["max_running_requests"] or PLAIN_CAP
        return lie.get("effective_max_running_requests_per_dp", asked)

    @property
    def graph_max_bs(self) -> int:
        return self.args["cuda_graph_max_bs_decode"] or GRAPH_MAX_BS

    @property
    def verify_width(self) -> int:
        """Tokens that one step forwards for each request."""
        if not self.speculates:
            return 1
        budget = self.args.get("speculative_ddtree_budget")
        return self.args["speculative_num_draft_tokens"] if budget is None else budget + 1

    @property
    def longest_step(self) -> int:
        """Most tokens that a step can commit."""
        block = self.args["speculative_dflash_block_size"] or self.scenario.block_size
        return min(block, self.verify_width)

    @property
    def accept_len(self) -> float:
        """Mean tokens of a step."""
        simulated = float(os.environ.get("SGLANG_SIMULATE_ACC_LEN", "-1"))
        wanted = simulated if simulated > 0 else self.scenario.accept_len
        return max(1.0, min(wanted, self.longest_step))

    @property
    def graphs(self) -> bool:
        return not (self.args["disable_cuda_graph"] or self.scenario.eager)


def graph_grid(resolved: Resolved) -> list[int]:
    """Batch sizes that the configuration lists, up to the largest."""
    top = resolved.graph_max_bs
    if resolved.speculates:
        grid = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, top + 1, 8)]
    else:
        grid = [1, 2, 4, 8, 12, *range(16, top + 1, 8)]
    return [one for one in grid if one <= top]


def graph_sizes(resolved: Resolved) -> list[int]:
    """Batch sizes that are captured: none above what may run."""
    return [one for one in graph_grid(resolved) if one <= resolved.running_cap]


def resolve(argv: Sequence[str], scenario: Scenario) -> Resolved:
    """Parse, and decide what was left open.

    Raises:
        ValueError: in the real server's words.
        SystemExit: argparse does not know the arguments.
    """
    args = vars(parser(scenario).parse_args(list(argv)))
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    args["page_size"] = args["page_size"] or 1
    args["attention_backend"] = args["attention_backend"] or "fa3"
    args["sampling_backend"] = args["sampling_backend"] or "flashinfer"
    args["mem_fraction_static"] = args["mem_fraction_static"] or 0.85
    args["random_seed"] = 42 if args["random_seed"] is None else args["random_seed"]
    if ":" in args["served_model_name"]:
        raise ValueError("served_model_name cannot contain a colon (':') character.")
    warnings: list[str] = []
    if args["speculative_algorithm"] is not None:
        _speculative(args, scenario, warnings)
    return Resolved(tuple(argv), scenario, args, tuple(warnings))


def _speculative(args: dict[str, Any], scenario: Scenario, warnings: list[str]) -> None:
    algorithm = args["speculative_algorithm"] = args["speculative_algorithm"].upper()
    if algorithm not in ({"DFLASH"} if scenario.build == "stock" else {"DFLASH", "DDTREE"}):
        raise ValueError(f"Unknown speculative algorithm name: {algorithm}")
    if args["speculative_draft_model_path"] is None:
        raise ValueError("DFLASH speculative decoding requires setting --speculative-draft-model-path.")
    is_plugin_tree = algorithm == "DDTREE" and scenario.build == "ddtree_tune"
    for name in ("speculative_num_steps",) if is_plugin_tree else ("speculative_num_steps", "speculative_eagle_topk"):
        if args[name] not in {None, 1}:
            warnings.append(f"DFLASH only supports {name} == 1; overriding {name}={args[name]} to 1.")
        args[name] = 1
    if is_plugin_tree:
        args["speculative_dflash_block_size"] = args["speculative_dflash_block_size"] or scenario.block_size
        args["speculative_num_draft_tokens"] = args["speculative_num_draft_tokens"] or scenario.block_size
        args["speculative_eagle_topk"] = args["speculative_eagle_topk"] or 1
    else:
        _chain(args, scenario)
    window = args["speculative_draft_window_size"]
    block = args["speculative_dflash_block_size"] if is_plugin_tree else args["speculative_num_draft_tokens"]
    if window is not None and window < block:
        raise ValueError(
            "--speculative-draft-window-size must be >= --speculative-num-draft-tokens (block_size). "
            f"window_size={window}, block_size={block}."
        )
    if algorithm == "DDTREE" and scenario.build == "pr29907":
        _pull_request(args, warnings)
    allowed = {"flashinfer", "fa3", "fa4", "triton", "trtllm_mha", "ascend"}
    draft = args["speculative_draft_attention_backend"] or args["attention_backend"]
    args["speculative_draft_attention_backend"] = draft if draft in allowed else "flashinfer"
    args["speculative_draft_model_revision"] = "main"
    if args["max_running_requests"] is None:
        args["max_running_requests"] = CHAIN_CAP
        warnings.append(
            "Max running requests is reset to 48 for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )


def _chain(args: dict[str, Any], scenario: Scenario) -> None:
    block, tokens = args["speculative_dflash_block_size"], args["speculative_num_draft_tokens"]
    if block is not None and block <= 0:
        raise ValueError(f"DFLASH requires --speculative-dflash-block-size to be positive, got {block}.")
    if block is not None and tokens is not None and block != tokens:
        raise ValueError(
            "Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they differ. "
            f"For DFLASH they must match. speculative_num_draft_tokens={tokens}, speculative_dflash_block_size={block}."
        )
    args["speculative_num_draft_tokens"] = block or tokens or scenario.block_size


def _pull_request(args: dict[str, Any], warnings: list[str]) -> None:
    depth = args["speculative_num_draft_tokens"] - 1
    budget = args["speculative_ddtree_budget"]
    budget = args["speculative_ddtree_budget"] = depth if budget is None else budget
    if budget < 1:
        raise ValueError(f"DDTREE requires --speculative-ddtree-budget to be positive, got {budget}.")
    if args["page_size"] != 1:
        raise ValueError("DDTREE currently supports only page_size == 1")
    if budget > depth and args["attention_backend"] != "triton":
        raise ValueError(f"DDTREE full tree requires the triton attention backend, got {args['attention_backend']}.")
    args["disable_overlap_schedule"] = True  # silently
    if args["speculative_draft_window_size"] is not None:
        warnings.append("--speculative-draft-window-size has no effect with speculative_algorithm=DDTREE")


def context_length(resolved: Resolved) -> int:
    """Most tokens of a request: as told, else as the model's folder says."""
    if resolved.context_length:
        return resolved.context_length
    config = Path(resolved.model_path) / "config.json"
    if not config.is_file():
        return DEFAULT_CONTEXT
    import json

    return json.loads(config.read_text()).get("max_position_embeddings", DEFAULT_CONTEXT)


def start_lines(resolved: Resolved) -> None:
    """What a server says of its arguments, before it loads anything."""
    for warning in resolved.warnings:
        log.say(warning)
    inside = ", ".join(f"{name}={value!r}" for name, value in resolved.args.items())
    log.say(f"server_args=ServerArgs({inside})")
