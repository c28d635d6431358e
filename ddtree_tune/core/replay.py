"""Acceptance of every (budget, topk), from one trace of drafts, exactly for greedy text.

Greedy text does not depend on what is drafted. So the drafts at every committed position, taken
once, decide what any tree would have accepted there, and a decoding run under any budget and topk
is a walk over positions that are all known.

Source: DDTree, arXiv 2604.12989, section 3: the tree at budget B is the first B pops of the tree at
any larger budget, so one tree per position and topk serves all budgets. Not replayable across the
window and the block size, which change the drafts, nor for sampled text.

Suffixes: P drafted positions, L draft depth, B budgets, K topks, R requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.stats import t_quantile_95
from ddtree_tune.core.tree import build_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.draft_trace import DraftTrace, TracedRequest
    from ddtree_tune.core.tree import DraftTree

_LEAST_REQUESTS = 3
"""Fewer show no spread worth an interval."""


class Bounds(NamedTuple):
    """95 % intervals of a plane."""

    low_BK: NDArray[np.float64]
    high_BK: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Replay:
    """What every (budget, topk) accepts on the requests of a trace."""

    budgets: tuple[int, ...]
    topks: tuple[int, ...]
    histograms: NDArray[np.int64]
    """(R, B, K, L + 1) int64: verify steps of a request by how many drafted tokens they accepted."""

    @property
    def verify_steps(self) -> NDArray[np.int64]:
        """Verify steps of each request, (R, B, K) int64."""
        return np.asarray(self.histograms.sum(axis=-1))

    @property
    def committed(self) -> NDArray[np.int64]:
        """Tokens that those steps committed, the target's own included, (R, B, K) int64."""
        return np.asarray(self.histograms @ np.arange(1, self.histograms.shape[-1] + 1))

    @property
    def accept_len(self) -> NDArray[np.float64]:
        """Committed tokens per verify step, pooled over the requests, (B, K) float64.

        Source: `timing.accept_length`: the sum of (i + 1) h_i over the sum of h_i.
        """
        return np.asarray(self.committed.sum(axis=0) / self.verify_steps.sum(axis=0), dtype=np.float64)

    @property
    def deviation(self) -> NDArray[np.float64] | None:
        """Standard error of ``accept_len``, (B, K) float64, requests being a sample; None below three.

        The linearised ratio estimator: s^2 = R / (R - 1) * sum (c_r - a v_r)^2 / (sum v_r)^2 with
        committed tokens c, verify steps v and their pooled ratio a.

        Source: Cochran, Sampling Techniques (1977), section 6.4.
        """
        steps, drafted = self.verify_steps, self._drafted
        if drafted < _LEAST_REQUESTS:
            return None
        errors = self.committed - self.accept_len * steps
        spread = np.sqrt(drafted / (drafted - 1) * (errors**2).sum(axis=0))
        return np.asarray(spread / steps.sum(axis=0), dtype=np.float64)

    @property
    def interval(self) -> Bounds | None:
        """95 % interval of ``accept_len`` on other requests of the same kind: Student's t; None below three.

        Two settings meet the same requests, so their difference is surer than the two intervals say.
        """
        if (deviation := self.deviation) is None:
            return None
        half = t_quantile_95(self._drafted - 1) * deviation
        return Bounds(np.maximum(self.accept_len - half, 1.0), self.accept_len + half)

    @property
    def _drafted(self) -> int:
        """Requests with a verify step."""
        return int((self.verify_steps > 0).all(axis=(1, 2)).sum())


def replay(trace: DraftTrace, budgets: Sequence[int], topks: Sequence[int]) -> Replay:
    """Simulate a greedy run of every (budget, topk).

    A step of topk 1 is the plain chain of its budget, at most a block.

    Args:
        trace: at least one request with a draft.
        budgets: at least 1 each.
        topks: at least 1 each, at most what the trace holds.

    Raises:
        SpecError: the trace cannot tell of a topk, or there is nothing to replay.
    """
    if not budgets or not topks or min(*budgets, *topks, 1) < 1:
        raise SpecError(f"budgets and topks must be at least 1, but got {list(budgets)} and {list(topks)}")
    if max(topks) > trace.header.topk:
        raise SpecError(
            f"topks must be at most the {trace.header.topk} candidates that the trace keeps, but got {max(topks)}"
        )
    histograms = [_simulate(request, _matched(request, budgets, topks)) for request in trace.requests]
    return Replay(tuple(budgets), tuple(topks), np.asarray(histograms))


def replay_chain(trace: DraftTrace) -> Replay:
    """Simulate the plain chain of a whole block."""
    return replay(trace, (trace.header.depth,), (1,))


def smallest_enough(accept_len: NDArray[np.float64], share: float = 0.99) -> int:
    """Index of the first value, (n,) float64, that reaches a share of the last one."""
    return int(np.argmax(accept_len >= share * accept_len[-1]))


def _matched(request: TracedRequest, budgets: Sequence[int], topks: Sequence[int]) -> NDArray[np.int64]:
    """How many drafted tokens a step from each position accepts.

    Args:
        request: the traced reply.
        budgets: (B,) nodes.
        topks: (K,) candidates.

    Returns:
        (P, B, K) int64.
    """
    paths = _target_ranks(request)
    matched = np.zeros((len(paths), len(budgets), len(topks)), dtype=np.int64)
    for position, path in enumerate(paths):
        if not path:
            continue
        log_probs = request.log_probs[position].tolist()
        for column, topk in enumerate(topks):
            inside = next((depth for depth, rank in enumerate(path) if rank >= topk), len(path))
            if inside:
                tree = build_tree([row[:topk] for row in log_probs], max(budgets))
                matched[position, :, column] = np.searchsorted(_pops(tree, path[:inside]), budgets)
    return matched


def _target_ranks(request: TracedRequest) -> list[list[int]]:
    """The ranks of the target's own tokens from each position on, up to the first that is no candidate.

    A step commits what it accepts and one token more, so it accepts no more than the known tokens
    allow: where they end with a stop token, the step ends there as the engine's does.
    """
    depth, last = request.candidates.shape[1], len(request.tokens) - 1
    paths = []
    for position, candidates in enumerate(request.candidates):
        known = max(0, min(depth, last - position - 1))
        hits = candidates[:known] == request.tokens[position + 1 : position + 1 + known, None]
        found = hits.any(axis=1)
        length = known if found.all() else int(found.argmin())
        paths.append(hits[:length].argmax(axis=1).tolist())
    return paths


def _pops(tree: DraftTree, path: Sequence[int]) -> list[int]:
    """When each node of a rank path was popped, from 0, as far as the tree holds it; ascending."""
    pops: list[int] = []
    node = 0
    for index, (parent, rank) in enumerate(zip(tree.parents_N, tree.ranks_N, strict=True)):
        if parent == node and rank == path[len(pops)]:
            pops.append(index)
            node = index + 1
            if len(pops) == len(path):
                break
    return pops


def _simulate(request: TracedRequest, matched: NDArray[np.int64]) -> NDArray[np.int64]:
    """Step every (budget, topk) through the reply.

    The reply's first token comes from the prefill. A step at position p commits 1 + matched tokens;
    the last one counts all that it accepted, as the engine does, though the reply is cut there.

    Returns:
        (B, K, L + 1) int64, see `Replay`.
    """
    shape = matched.shape[1:]
    grid: NDArray[np.int64] = np.indices(shape)
    histogram = np.zeros((*shape, request.candidates.shape[1] + 1), dtype=np.int64)
    at: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
    while (running := at < len(matched)).any():
        row, column = grid[0][running], grid[1][running]
        accepted = matched[at[running], row, column]
        histogram[row, column, accepted] += 1
        at[running] += 1 + accepted
    return histogram


def positions(trace: DraftTrace) -> int:
    """Drafted positions of a trace."""
    return sum(map(len, (request.candidates for request in trace.requests)))
