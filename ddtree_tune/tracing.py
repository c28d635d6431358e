"""Traces the drafts of a sweep's own prompts in the built-in engine: ``ddtree-tune trace SPEC``.

The prompts are those that the sweep's cells send in their windows, cut by the same code to the
engine's own count, so that the replay of the trace speaks of the text that the trials measure.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from ddtree_tune.builtin import options
from ddtree_tune.builtin.text import TextCodec
from ddtree_tune.builtin.tracer import Tracer
from ddtree_tune.builtin.weights import load_drafter, load_target
from ddtree_tune.core.draft_trace import DraftTrace, TraceHeader
from ddtree_tune.core.errors import EngineError, SpecError
from ddtree_tune.core.replay import positions
from ddtree_tune.core.trace import Phase
from ddtree_tune.core.workload import Ends
from ddtree_tune.node.counting import Counter, Counts
from ddtree_tune.node.live import user
from ddtree_tune.node.loadgen import prompts_of, streams_of
from ddtree_tune.node.replay_file import check_place, write_trace
from ddtree_tune.node.spec_file import read_spec

if TYPE_CHECKING:
    from pathlib import Path

    from ddtree_tune.builtin.options import Options
    from ddtree_tune.builtin.weights import DraftWeights, TargetWeights
    from ddtree_tune.core.spec import LoadSpec, SweepSpec
    from ddtree_tune.core.workload import Cell
    from ddtree_tune.node.live import ChatRequest, Messages
    from ddtree_tune.node.prompts import Prompt


class Asked(NamedTuple):
    """One prompt of a cell."""

    cell: Cell
    number: int
    """Within the cell's stream."""
    prompt: Prompt


class _Codec:
    """Counts and encodes conversations as the engine's server does."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec

    def encode(self, messages: Messages) -> list[int]:
        """The tokens of a conversation."""
        return self._codec.encode(self._codec.render(messages, {}), special=False)

    async def count_tokens(self, messages: Messages) -> int:
        """How many they are, asked as a server is asked."""
        return len(self.encode(messages))

    async def chat_once(self, request: ChatRequest) -> dict[str, Any]:
        """The usage of a conversation; nothing is said."""
        return {"usage": {"prompt_tokens": len(self.encode(request.messages or ()))}}


def trace_command(spec_path: Path, out: Path, *, window: int | None, topk: int, requests: int) -> int:
    """Trace some prompts of every cell into a file.

    Args:
        spec_path: YAML of a sweep on the built-in engine.
        out: file for the trace.
        window: committed positions that the drafter attends to; None is all of them.
        topk: candidates to keep of each position.
        requests: of each cell.

    Returns:
        The exit code 0.

    Raises:
        SpecError: the sweep is none of the built-in engine, a value does not fit it, or the file has no place.
    """
    spec = read_spec(spec_path)
    check_place(out)
    trace = trace_load(spec, window=window, topk=topk, requests=requests)
    write_trace(out, trace)
    print(f"{len(trace.requests)} requests, {positions(trace)} positions: {out}")
    return 0


def trace_load(spec: SweepSpec, *, window: int | None, topk: int, requests: int) -> DraftTrace:
    """Trace the first prompts of every cell's window; see ``trace_command``."""
    asked = _options(spec)
    target, drafter = _load(asked)
    block_size = asked.block_size or drafter.config.block_size
    limits = {
        "--block-size": (block_size, 2, drafter.config.block_size),
        "--window": (window or block_size, block_size, target.config.max_position_embeddings),
        "--topk": (topk, 1, target.config.vocab_size),
    }
    for name, (value, low, high) in limits.items():
        if not low <= value <= high:
            raise SpecError(f"{name} must be from {low} to {high} for this pair, but got {value}")
    header = TraceHeader(
        target=asked.model.name,
        drafter=asked.draft_model.name,
        block_size=block_size,
        window=window,
        topk=topk,
        dtype="float32",
    )
    tracer = Tracer(target, drafter, window=window, topk=topk, block_size=block_size)
    codec = _Codec(TextCodec(asked.model))
    traced = [
        tracer.trace(
            codec.encode(user(one.prompt.text)),
            one.cell.output_tokens,
            ignore_eos=one.cell.ends is Ends.FIXED,
            name=f"{one.cell.cell_id}-{one.number}",
            context=one.cell.context,
            family=one.prompt.family,
        )
        for one in prompts_of_cells(spec, requests)
    ]
    return DraftTrace(header, tuple(traced))


def prompts_of_cells(spec: SweepSpec, requests: int) -> list[Asked]:
    """What every cell of a sweep on the built-in engine sends first, in the window of its first repeat.

    Args:
        spec: the sweep.
        requests: of each cell.
    """
    codec = _Codec(TextCodec(_options(spec).model))
    return asyncio.run(_cut(spec.load, spec.search.seed, requests, codec))


async def _cut(load: LoadSpec, seed: int, requests: int, codec: _Codec) -> list[Asked]:
    prompts = prompts_of(load, seed)
    counter = Counter(codec, prompts.samples, Counts())
    streams = {cell: streams_of(load, cell, 0)[Phase.WINDOW] for cell in load.cells()}
    return [
        Asked(cell, number, await prompts.cut(cell, stream, number, counter))
        for cell, stream in streams.items()
        for number in range(requests)
    ]


def _options(spec: SweepSpec) -> Options:
    """The command line of the engine that the spec means, as far as it decides the drafts."""
    engine = spec.engine
    if engine.kind != "builtin":
        raise SpecError(f"engine.kind must be builtin to be traced here, but got {engine.kind}")
    models = [*(("--model", engine.model) if engine.model else ())]
    models += ("--draft-model", engine.draft_model) if engine.draft_model else ()
    return options.parse([*models, *engine.args, "--port", "0", "--served-model-name", "trace"])


def _load(asked: Options) -> tuple[TargetWeights, DraftWeights]:
    try:
        target = load_target(asked.model)
        return target, load_drafter(asked.draft_model, target)
    except EngineError as error:
        raise SpecError(str(error)) from None
