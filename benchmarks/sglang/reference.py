"""The prompts, and what the built-in engine does with them: greedy replies, and verify steps of every setting.

The drafts at every position of the replies are traced on the CPU in float32 and replayed exactly
(``core/replay.py``); SGLang computes in bfloat16, so where two tokens are nearly tied its text, and
with it the count, may differ. Kept in ``reference.parquet``; ``python -m benchmarks.sglang
reference`` makes it again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.sglang.prompts import FILE, MAX_TOKENS
from benchmarks.sglang.settings import BUDGETS, TOPKS
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.builtin.text import TextCodec
from ddtree_tune.builtin.tracer import Tracer
from ddtree_tune.builtin.weights import load_drafter, load_target
from ddtree_tune.core.draft_trace import DraftTrace, TracedRequest, TraceHeader
from ddtree_tune.core.replay import replay
from ddtree_tune.node.problems import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST_TOKENS = 128
"""Shorter replies are left out."""
PROMPTS = 64


def make() -> None:
    """Decode, trace, replay and keep."""
    target = load_target(PAIR / "target")
    drafter = load_drafter(PAIR / "draft", target)
    tracer = Tracer(target, drafter, window=None, topk=max(TOPKS))
    codec = TextCodec(PAIR / "target")
    prompts: list[tuple[str, str, list[int]]] = []
    traced: list[TracedRequest] = []
    for family, task in _tasks():
        text = codec.render([{"role": "user", "content": task}], {})
        ids = codec.encode(text, special=False)
        one = tracer.trace(ids, MAX_TOKENS, ignore_eos=False, name=str(len(traced)), context=None, family=family)
        if one.reply_tokens >= LEAST_TOKENS:
            prompts.append((family, text, ids))
            traced.append(one)
            print(len(traced), family, one.reply_tokens, flush=True)
        if len(traced) == PROMPTS:
            break
    header = TraceHeader(
        target="pair", drafter="pair", block_size=drafter.config.block_size, window=None, topk=max(TOPKS),
        dtype="float32",
    )  # fmt: skip
    steps = replay(DraftTrace(header, tuple(traced)), BUDGETS, TOPKS).verify_steps
    rows = [
        {
            "family": family,
            "text": text,
            "ids": ids,
            "reply": one.tokens[: one.reply_tokens].tolist(),
            "steps": [
                (f"{budget}/{topk}", int(steps[at, row, column]))
                for row, budget in enumerate(BUDGETS)
                for column, topk in enumerate(TOPKS)
            ],
        }
        for at, ((family, text, ids), one) in enumerate(zip(prompts, traced, strict=True))
    ]
    numbers = pa.list_(pa.int32())
    schema = pa.schema(
        [
            *(("family", pa.string()), ("text", pa.string()), ("ids", numbers), ("reply", numbers)),
            ("steps", pa.map_(pa.string(), pa.int32())),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), FILE, compression="zstd")
    tokens = sum(len(row["reply"]) - 1 for row in rows)
    for name in ("15/1", "8/4", "16/4", "64/8"):
        print(name, f"{tokens / sum(dict(row['steps'])[name] for row in rows):.3f} tokens a step")


def _tasks() -> Iterator[tuple[str, str]]:
    """Family and text of the load's own tasks, from all over the file."""
    lines = (SHIPPED / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    for at in np.random.default_rng(8).permutation(len(lines)):
        task = json.loads(lines[at])
        yield task["family"], task["prompt"]
