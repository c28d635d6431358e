"""One decoding step over several sequences: draft, verify, walk, commit.

A sequence holds committed tokens, of which the caches know all but the last (the anchor). Each
step reads the anchor, so it commits at least one token: the target's own choice after it. The
drafted tokens that the target would have chosen too are committed with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.builtin.buffers import Span
from ddtree_tune.builtin.layers import causal_mask
from ddtree_tune.builtin.models import Drafter, Limits, Target
from ddtree_tune.builtin.speculation import Draft, Drafting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.builtin.sampling import Sampler
    from ddtree_tune.builtin.speculation import Speculation
    from ddtree_tune.builtin.weights import DraftWeights, TargetWeights


@dataclass(slots=True)
class Stream:
    """One sequence in its slot."""

    slot: int
    sampler: Sampler
    stop_ids: frozenset[int]
    """Tokens that end it; nothing behind one is committed."""
    length: int = 0
    """Positions that the caches hold."""
    anchor: int = -1
    """The last committed token; -1 before the prompt is read."""


@dataclass(frozen=True, slots=True)
class Part:
    """The next tokens of one sequence's prompt."""

    stream: Stream
    tokens: Sequence[int]
    last: bool
    """Whether the prompt ends here; then the reply's first token becomes the anchor."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What one step added to one sequence."""

    tokens: list[int]
    accepted: int | None
    """Drafted tokens among them; None where nothing was drafted."""


@dataclass(slots=True)
class StepTimes:
    """Where decoding spent its time, in seconds, summed over steps."""

    draft_s: float = 0.0
    build_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0
    steps: int = 0


class Decoder:
    """Both models, their caches and the speculation between them."""

    def __init__(
        self,
        target: TargetWeights,
        drafter: DraftWeights | None,
        speculation: Speculation,
        *,
        slots: int,
        length: int,
        chunk: int,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Allocate everything.

        Args:
            target: weights.
            drafter: weights; None decodes without speculation.
            speculation: resolved knobs.
            slots: sequences at once.
            length: most tokens of one sequence.
            chunk: most prompt tokens of one `read`, over all sequences.
            clock: of `times`.
        """
        self._limits = Limits(slots, length, chunk, speculation.width)
        self._target = Target(target, self._limits)
        self._drafter = None if drafter is None else Drafter(drafter, target, speculation, self._limits)
        self._causal = causal_mask(chunk)
        self._clock = clock
        self.use(speculation)

    def use(self, speculation: Speculation, drafting: Drafting | None = None) -> None:
        """Speculate otherwise from the next step on; no wider than what was allocated for.

        After steps without speculation the drafter lacks their positions: go back to where it was
        used, or read the sequences anew.

        Args:
            speculation: resolved knobs.
            drafting: what becomes of the drafter's scores; the speculation's own when None.
        """
        self.speculation = speculation
        self.times = StepTimes()
        speculates = self._drafter is not None and speculation.budget > 0
        self._drafting = (drafting or Drafting(speculation)) if speculates else None
        self._taps = () if self._drafter is None or self._drafting is None else self._drafter.taps

    def read(self, parts: Sequence[Part]) -> None:
        """Read parts of prompts in one pass, at most a chunk of tokens in all."""
        tokens: list[int] = []
        spans = []
        for part in parts:
            count = len(part.tokens)
            mask = self._causal[:count, :, :count] if count > 1 else None
            spans.append(Span(part.stream.slot, len(tokens), count, part.stream.length, mask=mask))
            tokens += part.tokens
        positions = np.concatenate([np.arange(span.start, span.start + span.count) for span in spans])
        hidden, features = self._target.forward(np.array(tokens), positions, spans, self._taps)
        if self._drafter is not None and features is not None:
            self._drafter.extend(features, positions, spans)
        ends = [span.first + span.count - 1 for span, part in zip(spans, parts, strict=True) if part.last]
        logits = iter(self._target.logits(hidden[ends])) if ends else iter(())
        for part in parts:
            part.stream.length += len(part.tokens)
            if part.last:
                part.stream.anchor = part.stream.sampler.choose(next(logits))

    def step(self, streams: Sequence[Stream]) -> list[Commit]:
        """Advance every sequence by at least one token."""
        self.times.steps += 1
        if self._drafter is None or self._drafting is None:
            return self._step_plain(streams)
        return self._step_drafted(streams, self._drafter, self._drafting)

    def _step_plain(self, streams: Sequence[Stream]) -> list[Commit]:
        start_s = self._clock()
        spans = [Span(stream.slot, row, 1, stream.length) for row, stream in enumerate(streams)]
        tokens = np.array([stream.anchor for stream in streams])
        hidden, _ = self._target.forward(tokens, np.array([stream.length for stream in streams]), spans)
        logits = self._target.logits(hidden)
        best = logits.argmax(-1).tolist()
        commits = []
        for row, stream in enumerate(streams):
            stream.length += 1
            stream.anchor = best[row] if stream.sampler.greedy else stream.sampler.choose(logits[row])
            commits.append(Commit([stream.anchor], None))
        self.times.verify_s += self._clock() - start_s
        return commits

    def _step_drafted(self, streams: Sequence[Stream], drafter: Drafter, drafting: Drafting) -> list[Commit]:
        start_s = self._clock()
        lengths = [stream.length for stream in streams]
        slots = [stream.slot for stream in streams]
        scores = drafter.draft(slots, [stream.anchor for stream in streams], lengths, self.speculation)
        drafted_s = self._clock()
        drafts = drafting.drafts(scores)
        built_s = self._clock()

        tokens: list[int] = []
        spans = []
        for stream, draft in zip(streams, drafts, strict=True):
            spans.append(Span(stream.slot, len(tokens), draft.tree.width, stream.length, mask=draft.mask))
            tokens += [stream.anchor, *draft.tokens]
        positions = np.concatenate(
            [draft.depths + length for draft, length in zip(drafts, lengths, strict=True)], dtype=np.int64
        )
        hidden, features = self._target.forward(np.array(tokens), positions, spans, self._taps)
        logits = self._target.logits(hidden)
        best = logits.argmax(-1).tolist()
        verified_s = self._clock()

        commits = []
        kept: list[int] = []
        kept_spans = []
        for stream, draft, span in zip(streams, drafts, spans, strict=True):
            path, chosen = walk(stream, draft, logits, best, span.first)
            self._target.cache.keep(stream.slot, stream.length, path)
            kept_spans.append(Span(stream.slot, len(kept), len(path), stream.length))
            kept += [span.first + node for node in path]
            stream.length += len(path)
            stream.anchor = chosen[-1]
            commits.append(Commit(chosen, len(path) - 1))
        if features is not None:
            drafter.extend(features, positions, kept_spans, kept)
        self._count(start_s, drafted_s, built_s, verified_s)
        return commits

    def _count(self, start_s: float, drafted_s: float, built_s: float, verified_s: float) -> None:
        self.times.draft_s += drafted_s - start_s
        self.times.build_s += built_s - drafted_s
        self.times.verify_s += verified_s - built_s
        self.times.commit_s += self._clock() - verified_s


def walk(
    stream: Stream, draft: Draft, logits: NDArray[np.float32], best: Sequence[int], first: int
) -> tuple[list[int], list[int]]:
    """Follow the target's own choices through the tree.

    Args:
        stream: whose sampler chooses; a greedy one has chosen already.
        draft: the verified tree.
        logits: (batch, vocab) float32 scores of the pass.
        best: (batch,) the best token of each row.
        first: row of the root.

    Returns:
        The accepted nodes, root first, and the chosen tokens, one for each. A token that ends
        the sequence ends the walk.
    """
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(draft.tree.parents_N, draft.tokens, strict=True), 1)
    }
    path, chosen = [], []
    node: int | None = 0
    while node is not None:
        row = first + node
        token = best[row] if stream.sampler.greedy else stream.sampler.choose(logits[row])
        path.append(node)
        chosen.append(token)
        node = None if token in stream.stop_ids else children.get((node, token))
    return path, chosen
