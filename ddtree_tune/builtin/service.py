"""What every endpoint stands on: prompts in, growing replies out, and the server's own facts."""

from __future__ import annotations

import secrets
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ddtree_tune import __version__
from ddtree_tune.builtin.generation import Generation, join
from ddtree_tune.builtin.protocol import Refused
from ddtree_tune.builtin.scheduler import Job
from ddtree_tune.builtin.text import THINK_START, ThoughtSplitter
from ddtree_tune.core.engine import Algorithm

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from ddtree_tune.builtin.generation import Piece
    from ddtree_tune.builtin.protocol import ChatMessage
    from ddtree_tune.builtin.sampling import Sampling
    from ddtree_tune.builtin.speculation import Speculation
    from ddtree_tune.builtin.text import TextCodec
    from ddtree_tune.builtin.worker import Worker

SGLANG_NAMES = {Algorithm.NONE: None, Algorithm.CHAIN: "DFLASH", Algorithm.TREE: "DDTREE"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the server says about itself."""

    served_model_name: str
    model_path: str
    draft_model_path: str | None
    architectures: tuple[str, ...]
    max_model_len: int
    max_running_requests: int
    chunked_prefill_size: int
    stream_interval: int
    threads: int
    launch_command: str
    startup_s: float
    created: int
    """Unix time of the start, a label only."""
    pid: int


@dataclass(slots=True)
class Service:
    """The running engine as the endpoints see it."""

    facts: Facts
    speculation: Speculation
    codec: TextCodec
    worker: Worker
    ready: bool = False
    """Whether a first generation has succeeded and no shutdown has begun."""

    def prompt(self, text: str | None, tokens: Sequence[int] | None) -> tuple[int, ...]:
        """The tokens of a prompt that is given either way.

        Raises:
            Refused: it is empty or has an unknown token.
        """
        ids = tuple(self.codec.encode(text) if text is not None else tokens or ())
        if not ids:
            raise Refused("the prompt must hold at least one token, but got none")
        if max(ids) >= self.codec.size:
            raise Refused(f"token ids must be below {self.codec.size}, but got {max(ids)}")
        return ids

    def chat_prompt(self, messages: Sequence[ChatMessage], options: Mapping[str, Any]) -> tuple[int, ...]:
        """The tokens of a conversation, up to where the assistant begins.

        Raises:
            Refused: the chat template does.
        """
        try:
            text = self.codec.render([message.for_template() for message in messages], options)
        except ValueError as error:
            raise Refused(str(error), parameter="messages") from None
        return self.prompt(None, self.codec.encode(text, special=False))

    def limit(self, prompt: Sequence[int], max_tokens: int | None) -> int:
        """How many tokens the reply may have.

        Raises:
            Refused: prompt and reply do not fit the model's length.
        """
        length = self.facts.max_model_len
        wanted = max_tokens or length - len(prompt)
        if wanted < 1 or len(prompt) + wanted > length:
            raise Refused(
                f"prompt and reply must fit {length} tokens together, but got a prompt of {len(prompt)} tokens and "
                f"{'no limit' if max_tokens is None else f'max_tokens {max_tokens}'}; shorten one of them",
                parameter="max_tokens",
            )
        return wanted

    def check_model(self, name: str | None) -> None:
        """Refuse a request for another model."""
        if name is not None and name != self.facts.served_model_name:
            raise Refused(
                f"model must be {self.facts.served_model_name!r}, but got {name!r}; see /v1/models", 404, "model"
            )

    def begin(self, prompt: Sequence[int], sampling: Sampling, stops: str | Sequence[str] | None) -> Reply:
        """Prepare a reply; it starts when its pieces are asked for."""
        # A template may open the thought already, so that the reply starts inside of it.
        inside = self.codec.thinks and self.codec.decode(prompt[-4:]).rstrip().endswith(THINK_START)
        request_id = secrets.token_hex(16)
        generation = Generation(
            request_id,
            len(prompt),
            self.speculation.budget,
            tuple(filter(None, [stops] if isinstance(stops, str) else stops or ())),
            self.codec.stream(),
            ThoughtSplitter(inside=inside),
            perf_counter,
            perf_counter(),
        )
        return Reply(self.worker, Job(request_id, tuple(prompt), sampling), generation)

    def server_info(self) -> dict[str, Any]:
        """``/server_info``: resolved settings and live state."""
        facts, speculation, counters = self.facts, self.speculation, self.worker.scheduler.counters
        on = speculation.algorithm is not Algorithm.NONE
        tree = speculation.algorithm is Algorithm.TREE
        state = {
            "last_gen_throughput": counters.throughput_tps,
            "effective_max_running_requests_per_dp": facts.max_running_requests,
        }
        if counters.accept_len is not None:
            state["avg_spec_accept_length"] = counters.accept_len
        return {
            "version": __version__,
            "model_path": facts.model_path,
            "tokenizer_path": facts.model_path,
            "served_model_name": facts.served_model_name,
            "device": "cpu",
            "dtype": "float32",
            "context_length": facts.max_model_len,
            "max_running_requests": facts.max_running_requests,
            "chunked_prefill_size": facts.chunked_prefill_size,
            "stream_interval": facts.stream_interval,
            "page_size": 1,
            "disable_radix_cache": True,
            "threads": facts.threads,
            "speculative_algorithm": SGLANG_NAMES[speculation.algorithm],
            "speculative_draft_model_path": facts.draft_model_path,
            "speculative_ddtree_budget": speculation.budget if tree else None,
            "speculative_ddtree_topk": speculation.topk if tree else None,
            "speculative_draft_window_size": speculation.window,
            "speculative_dflash_block_size": speculation.block_size if on else None,
            "speculative_num_draft_tokens": speculation.width if on else None,
            "launch_command": facts.launch_command,
            "startup_time": {"scheduler_e2e": facts.startup_s},
            "pid": facts.pid,
            "internal_states": [state],
        }

    def model_info(self) -> dict[str, Any]:
        """``/model_info``."""
        return {
            "model_path": self.facts.model_path,
            "tokenizer_path": self.facts.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "qwen3",
            "architectures": list(self.facts.architectures),
        }

    def metrics(self) -> str:
        """``/metrics`` in the Prometheus text format."""
        scheduler = self.worker.scheduler
        counters = scheduler.counters
        rows: list[tuple[str, str, str, float]] = [
            ("num_running_reqs", "gauge", "Requests that hold a slot.", scheduler.running),
            ("num_queue_reqs", "gauge", "Requests that wait for a slot.", scheduler.waiting),
            ("prompt_tokens_total", "counter", "Prompt tokens read.", counters.prompt_tokens),
            ("generation_tokens_total", "counter", "Tokens generated.", counters.generation_tokens),
            ("num_requests_total", "counter", "Requests received.", counters.requests),
            ("gen_throughput", "gauge", "Generated tokens per second.", counters.throughput_tps),
        ]
        if self.speculation.algorithm is not Algorithm.NONE:
            rows.append(("spec_verify_calls_total", "counter", "Verify steps.", counters.verify_steps))
            if counters.accept_len is not None:
                rows.append(("spec_accept_length", "gauge", "Tokens per verify step.", counters.accept_len))
        label = self.facts.served_model_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        return "".join(
            f'# HELP sglang:{name} {text}\n# TYPE sglang:{name} {kind}\nsglang:{name}{{model_name="{label}"}} {value}\n'
            for name, kind, text, value in rows
        )


class Reply:
    """One generation in progress."""

    def __init__(self, worker: Worker, job: Job, generation: Generation) -> None:
        self.generation = generation
        self._worker = worker
        self._job = job

    async def pieces(self, interval: int = 1) -> AsyncGenerator[Piece]:
        """Run the request and give its new text; closing this early aborts it.

        Args:
            interval: fewest new tokens of a piece, the last one aside.
        """
        generation = self.generation
        said = 0
        held: list[Piece] = []
        async with aclosing(self._worker.stream(self._job)) as deliveries:
            async for delivery in deliveries:
                held.append(generation.add(delivery))
                done = generation.finish is not None
                if done or len(generation.token_ids) - said >= interval:
                    said = len(generation.token_ids)
                    yield held[0] if len(held) == 1 else join(held)
                    held = []
                if done:
                    return

    async def whole(self) -> Generation:
        """Run the request to its end."""
        async with aclosing(self.pieces()) as pieces:
            async for _ in pieces:
                pass
        return self.generation
