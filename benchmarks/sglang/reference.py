"""The prompts, and what the built-in engine does with them: greedy replies, and verify steps of every setting.

The drafts at every position of the replies are traced on the CPU in float32 and replayed exactly
(``core/replay.py``); SGLang computes in bfloat16, so where two tokens are nearly tied its text, and
with it the count, may differ. Kept in ``reference.parquet``, and for short questions in
``check.parquet``; ``python -m benchmarks.sglang reference`` makes both again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.sglang.prompts import CHECK, CHECK_TOKENS, FILE, MAX_TOKENS
from benchmarks.sglang.settings import BUDGETS, TOPKS
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.builtin.text import TextCodec
from ddtree_tune.builtin.tracer import Tracer
from ddtree_tune.builtin.weights import load_drafter, load_target
from ddtree_tune.core.draft_trace import DraftTrace, TracedRequest, TraceHeader
from ddtree_tune.core.replay import replay
from ddtree_tune.node.problems import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LEAST_TOKENS = 128
"""Shorter replies are left out."""
PROMPTS = 64
QUESTIONS = 50
OTHERS = (
    "Write a Python function `clamp(value, low, high)` that limits `value` to the range from `low` to `high`.",
    "Write a Python function that adds two numbers.",
    "What is 17 times 23?",
)
_HEAD, _TAIL = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
_TURN = _HEAD + "{}" + _TAIL


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
    rows = priced(prompts, traced)
    keep(FILE, rows)
    tokens = sum(len(row["reply"]) - 1 for row in rows)
    for name in ("15/1", "8/4", "16/4", "64/8"):
        print(name, f"{tokens / sum(dict(row['steps'])[name] for row in rows):.3f} tokens a step")
    asked = [("question", text, codec.encode(text, special=False)) for text in questions()]
    traced = [
        tracer.trace(ids, CHECK_TOKENS, ignore_eos=False, name=str(at), context=None, family=family)
        for at, (family, _, ids) in enumerate(asked)
    ]
    keep(CHECK, [*priced(asked, traced), long_prompt(codec)])


def priced(prompts: Sequence[tuple[str, str, list[int]]], traced: Sequence[TracedRequest]) -> list[dict[str, Any]]:
    """Rows of a file: prompts as family, text and tokens, with the verify steps of every setting."""
    header = TraceHeader(
        target="pair", drafter="pair", block_size=traced[0].candidates.shape[1] + 1, window=None, topk=max(TOPKS),
        dtype="float32",
    )  # fmt: skip
    steps = replay(DraftTrace(header, tuple(traced)), BUDGETS, TOPKS).verify_steps
    return [
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


def keep(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write a file of prompts."""
    numbers = pa.list_(pa.int32())
    schema = pa.schema(
        [
            *(("family", pa.string()), ("text", pa.string()), ("ids", numbers), ("reply", numbers)),
            ("steps", pa.map_(pa.string(), pa.int32())),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), file, compression="zstd")


def questions() -> list[str]:
    """Short prompts: what the coding evaluation asks, and what it does not."""
    lines = (SHIPPED / "questions.jsonl").read_text(encoding="utf-8").splitlines()[: QUESTIONS - len(OTHERS)]
    return [_TURN.format(one) for one in (*(json.loads(line)["prompt"] for line in lines), *OTHERS)]


def long_prompt(codec: TextCodec) -> dict[str, Any]:
    """A prompt of more than two chunks of 1024 tokens: the questions, over and over."""
    heads = [text.removeprefix(_HEAD).removesuffix(_TAIL) for text in questions()]
    text = _TURN.format(" ".join(heads * 2)[:6000])
    return {"family": "long", "text": text, "ids": codec.encode(text, special=False), "reply": [], "steps": []}


def _tasks() -> Iterator[tuple[str, str]]:
    """Family and text of the load's own tasks, from all over the file."""
    lines = (SHIPPED / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    for at in np.random.default_rng(8).permutation(len(lines)):
        task = json.loads(lines[at])
        yield task["family"], task["prompt"]
