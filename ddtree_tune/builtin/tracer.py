"""Drafts at every committed position of greedy replies, by the engine's own steps.

The engine drafts as it always does and then verifies nothing but its anchor, so every step commits
one token and leaves the drafter's candidates at that position. It costs a drafter pass for each
token of the reply, and of the target what plain decoding costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.builtin.decoder import Decoder, Part, Stream
from ddtree_tune.builtin.sampling import Sampler, Sampling
from ddtree_tune.builtin.speculation import Draft, Drafting, Speculation, candidates
from ddtree_tune.core.draft_trace import TracedRequest
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.tree import DraftTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.builtin.weights import DraftWeights, TargetWeights

_CHUNK = 256
"""Prompt tokens of one pass."""
_GREEDY = Sampling(max_tokens=1, temperature=0.0)
_ANCHOR_ALONE = Draft(DraftTree((), (), ()), [], np.zeros(1, np.int64), np.zeros((1, 1, 1), np.float32))


class _Recording(Drafting):
    """Keeps the candidates of every draft and offers none of them."""

    def __init__(self, speculation: Speculation, topk: int) -> None:
        super().__init__(speculation)
        self._topk = topk
        self.log_probs: list[NDArray[np.float32]] = []
        self.tokens: list[NDArray[np.int64]] = []

    def drafts(self, logits: NDArray[np.float32]) -> list[Draft]:
        """See ``Drafting``."""
        log_probs, tokens = candidates(logits, self._topk)
        self.log_probs.extend(log_probs)
        self.tokens.extend(tokens)
        return [_ANCHOR_ALONE] * len(logits)


class Tracer:
    """Both models, tracing one request at a time."""

    def __init__(
        self,
        target: TargetWeights,
        drafter: DraftWeights,
        *,
        window: int | None,
        topk: int,
        block_size: int | None = None,
    ) -> None:
        """Allocate everything.

        Args:
            target: weights.
            drafter: weights.
            window: committed positions that the drafter attends to; None is all of them.
            topk: candidates to keep of each position.
            block_size: positions drafted at once; None is the drafter's own.
        """
        self._stop_ids = target.stop_ids
        self._topk = topk
        block = block_size or drafter.config.block_size
        self._chain = Speculation.resolve(Algorithm.CHAIN, 1, 1, window, block)
        self.length = target.config.max_position_embeddings
        """Most tokens of prompt and reply."""
        self._decoder = Decoder(target, drafter, self._chain, slots=1, length=self.length, chunk=_CHUNK)

    def trace(
        self, prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool, name: str, context: int | None, family: str
    ) -> TracedRequest:
        """Decode one reply.

        Args:
            prompt: at least one token.
            max_tokens: of the reply; prompt and reply fit ``length``.
            ignore_eos: whether the reply goes on behind a stop token.
            name: of the request within its trace.
            context: prompt length that the load asked for.
            family: of the prompt.
        """
        recording = _Recording(self._chain, self._topk)
        self._decoder.use(self._chain, recording)
        stream = Stream(0, Sampler(_GREEDY), frozenset() if ignore_eos else self._stop_ids)
        for start in range(0, len(prompt), _CHUNK):
            part = prompt[start : start + _CHUNK]
            self._decoder.read([Part(stream, part, last=start + len(part) == len(prompt))])
        tokens = [stream.anchor]
        self._decode(stream, tokens, max_tokens)
        reply_tokens = len(tokens)
        # What the target would say next decides how much the last step accepts; nobody drafts there.
        self._decoder.use(Speculation(Algorithm.NONE))
        self._decode(stream, tokens, min(max_tokens + self._chain.block_size, self.length - len(prompt)))
        shape = (reply_tokens - 1, self._chain.depth, self._topk)
        return TracedRequest(
            request_id=name,
            context=context,
            family=family,
            prompt_tokens=len(prompt),
            reply_tokens=reply_tokens,
            tokens=np.asarray(tokens),
            candidates=np.asarray(recording.tokens, dtype=np.int64).reshape(shape),
            log_probs=np.asarray(recording.log_probs, dtype=np.float32).reshape(shape),
        )

    def _decode(self, stream: Stream, tokens: list[int], limit: int) -> None:
        """Take steps of one token until there are ``limit`` or one ends the reply."""
        while len(tokens) < limit and tokens[-1] not in stream.stop_ids:
            for commit in self._decoder.step([stream]):
                tokens += commit.tokens
