"""Verify steps of every tree by a server's own drafts: `core/replay.py` in the server's arithmetic.

A server that traces commits one token a step and writes what its drafter proposes at each. Replayed,
that says what any tree would have accepted, with the same rounding as a server that verifies trees.
Where both said the same text they must agree.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.sglang import lossless
from benchmarks.sglang.rows import Traced
from benchmarks.sglang.settings import BUDGETS, TOPKS
from ddtree_tune.core.draft_trace import DraftTrace, read_trace
from ddtree_tune.core.errors import EngineError
from ddtree_tune.core.replay import replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.sglang.prompts import Prompt
    from benchmarks.sglang.rows import Reply
    from benchmarks.sglang.serving import Server
    from ddtree_tune.core.draft_trace import TracedRequest

_WRITTEN_S = 5.0
"""A reply's line is written just after the reply is sent."""


def trace(server: Server, prompts: Sequence[Prompt]) -> list[Traced]:
    """Ask a server that traces, and replay what it wrote.

    Args:
        server: one whose setting traces.
        prompts: to be asked, 16 in flight.

    Returns:
        A row per prompt.

    Raises:
        EngineError: a reply is not in the trace.
    """
    replies = lossless.ask(server, prompts, lossless.Pass("crowd", 0))
    return replayed(_written(server, {tuple(reply.ids) for reply in replies}), replies)


def replayed(drafts: DraftTrace, replies: Sequence[Reply]) -> list[Traced]:
    """What every tree would have taken for some replies.

    Args:
        drafts: a trace that holds all of them.
        replies: of the server that traced.
    """
    steps = replay(drafts, BUDGETS, TOPKS).verify_steps
    row = {_text(one): at for at, one in enumerate(drafts.requests)}
    return [
        Traced(
            reply.gpu,
            reply.index,
            reply.ids,
            {
                f"{budget}/{topk}": int(steps[row[tuple(reply.ids)], i, j])
                for i, budget in enumerate(BUDGETS)
                for j, topk in enumerate(TOPKS)
            },
        )
        for reply in replies
    ]


def _written(server: Server, wanted: set[tuple[int, ...]]) -> DraftTrace:
    """The trace, once all wanted replies are in it."""
    end = time.monotonic() + _WRITTEN_S
    while True:
        text = server.trace.read_text(encoding="utf-8")
        whole = read_trace(text[: text.rfind("\n") + 1].splitlines(), str(server.trace))
        found = {_text(one): one for one in whole.requests}
        if wanted <= found.keys():
            return DraftTrace(whole.header, tuple(found[one] for one in sorted(wanted)))
        if time.monotonic() > end:
            raise EngineError(
                f"the trace must hold all {len(wanted)} replies, but got {len(wanted & found.keys())} in {server.trace}"
            )
        time.sleep(0.2)


def _text(one: TracedRequest) -> tuple[int, ...]:
    return tuple(one.tokens[: one.reply_tokens].tolist())
