"""Writes what the drafter proposes at every committed position, when DDTREE_TUNE_TRACE names a file.

The format is that of ``core/draft_trace.py``, which ``ddtree-tune replay`` reads. The worker then
commits one token a step, so that every position of a reply is drafted at, whatever the trees are;
greedy text stays what it is. Log-probabilities are on the grid of ``trees``: a replayed tree is the
tree that the server would verify.
"""

from __future__ import annotations

import functools
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddtree_tune.sglang_plugin.step_times import new_file
from ddtree_tune.sglang_plugin.trees import GRID

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

VARIABLE = "DDTREE_TUNE_TRACE"
_GREEDY = 1
"""SGLang's top_k of a request at temperature 0."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Reply:
    request: Any
    candidates: list[Any] = field(default_factory=list)
    log_probs: list[Any] = field(default_factory=list)


class Tracer:
    """One trace.

    Args:
        path: a file that is not there yet.
        header: the fields of ``core.draft_trace.TraceHeader`` besides format and version.

    Raises:
        ValueError: the file is there, or cannot be made.
    """

    def __init__(self, path: str, header: dict[str, Any]) -> None:
        self._out = new_file(path, VARIABLE)
        self._out.write(json.dumps({"format": "draft_trace", "version": 1, **header}) + "\n")
        self._out.flush()
        self._replies: dict[str, _Reply] = {}

    def add(self, requests: Sequence[Any], costs: torch.Tensor, tokens: torch.Tensor) -> None:
        """Keep the drafts of one step.

        Args:
            requests: SGLang's requests of the batch.
            costs: (B, D, K) int64 on the grid.
            tokens: (B, D, K) int64.
        """
        log_probs = (costs.double() / -GRID).tolist()
        for request, offered, scores in zip(requests, tokens.tolist(), log_probs, strict=True):
            if request.sampling_params.top_k == _GREEDY:
                reply = self._replies.setdefault(request.rid, _Reply(request))
                reply.candidates.append(offered)
                reply.log_probs.append(scores)

    def write_finished(self) -> None:
        """Write the replies that are over."""
        for name, reply in list(self._replies.items()):
            if not reply.request.finished():
                continue
            del self._replies[name]
            tokens = list(reply.request.output_ids)
            if len(reply.candidates) != len(tokens) - 1:
                logger.warning(
                    "DDTREE trace leaves out %s: %d drafts for %d tokens", name, len(reply.candidates), len(tokens)
                )
                continue
            line = {
                "request_id": name,
                "prompt_tokens": len(reply.request.origin_input_ids),
                "reply_tokens": len(tokens),
                "tokens": tokens,
                "candidates": reply.candidates,
                "log_probs": reply.log_probs,
            }
            self._out.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._out.flush()

    def follow(self, scheduler: Any) -> None:
        """Look for finished replies after each result that a scheduler takes in.

        Args:
            scheduler: SGLang's class.
        """
        original = scheduler.process_batch_result

        @functools.wraps(original)
        def taken_in(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self.write_finished()
            return result

        scheduler.process_batch_result = taken_in
