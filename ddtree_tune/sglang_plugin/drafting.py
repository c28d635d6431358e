"""From the drafter's hidden states to trees, inside the drafter's CUDA graph.

Suffixes: S tensor-parallel shards, M drafted positions, K candidates, B requests, D draft depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ddtree_tune.sglang_plugin.trees import Trees, build_trees, costs_of

if TYPE_CHECKING:
    from ddtree_tune.sglang_plugin.knobs import Knobs
    from ddtree_tune.sglang_plugin.step_times import StepTimes

_CHUNK_BYTES = 1 << 28
"""Scores in single precision of so many positions at once; a large vocabulary would fill the GPU."""


class DraftHead:
    """The target's output head, which the drafter borrows.

    Args:
        lm_head: SGLang's module; each rank may hold a shard of the vocabulary.
        topk: candidates of a position.
        group: SGLang's tensor-parallel group.

    Raises:
        ValueError: the head is none whose scores can be read.
    """

    def __init__(self, lm_head: Any, topk: int, group: Any) -> None:
        weight = getattr(lm_head, "weight", None)
        if weight is None or not torch.is_floating_point(weight):
            kind = type(lm_head).__name__ if weight is None else weight.dtype
            raise ValueError(f"DDTREE must have a target whose lm_head is a floating-point matrix, but got {kind}")
        shard = getattr(lm_head, "shard_indices", None)
        if (shard is None and group.world_size > 1) or (shard is not None and int(shard.num_added_elements)):
            raise ValueError(
                "DDTREE must have a target whose lm_head has one shard of the vocabulary per rank and no added tokens, "
                f"but got {type(lm_head).__name__}"
            )
        rows = int(weight.shape[0] if shard is None else shard.num_org_elements)
        if topk > rows:
            raise ValueError(f"--speculative-eagle-topk must be at most a rank's {rows} tokens, but got {topk}")
        self._weight = weight.detach()[:rows]
        self._first_token = 0 if shard is None else int(shard.org_vocab_start_index)
        self._topk = topk
        self._group = group

    def top(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The most probable tokens of every position.

        Args:
            hidden: (M, hidden size) last hidden states of the drafter.

        Returns:
            (M, K) float32 log-probabilities, descending, and their int64 tokens.
        """
        step = max(1, _CHUNK_BYTES // (4 * self._weight.shape[0]))
        parts = [self._local(part) for part in hidden.to(self._weight.dtype).split(step)]
        scores, tokens, totals = (torch.cat(one) for one in zip(*parts, strict=True))
        if self._group.world_size == 1:
            return scores - totals[:, None], tokens
        return merge_shards(self._gathered(scores), self._gathered(tokens), self._gathered(totals), self._topk)

    def _local(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = torch.matmul(hidden, self._weight.T).float()
        scores, tokens = torch.topk(logits, self._topk, dim=-1)
        return scores, tokens + self._first_token, torch.logsumexp(logits, -1)

    def _gathered(self, local: torch.Tensor) -> torch.Tensor:
        shards = self._group.world_size
        everyones = torch.empty(shards * local.numel(), dtype=local.dtype, device=local.device)
        self._group.all_gather_into_tensor(everyones, local.reshape(-1))
        return everyones.view(shards, *local.shape)


def merge_shards(
    scores: torch.Tensor, tokens: torch.Tensor, totals: torch.Tensor, topk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates of the whole vocabulary from those of its shards.

    Args:
        scores: (S, M, K) float32 logits of each shard's best.
        tokens: (S, M, K) int64.
        totals: (S, M) float32 log-sum-exp of each shard's logits.
        topk: candidates to keep.

    Returns:
        (M, K) float32 log-probabilities, descending, and their int64 tokens.
    """
    best, place = torch.topk(scores.permute(1, 0, 2).flatten(1), topk, dim=-1)
    return best - torch.logsumexp(totals, 0)[:, None], tokens.permute(1, 0, 2).flatten(1).gather(1, place)


class TreeDrafter:
    """Turns the drafter's hidden states into trees, in buffers whose addresses a CUDA graph keeps.

    Args:
        head: the target's head.
        knobs: of the trees.
        capacity: most requests at once.
        device: of the drafter.
        times: where a step's parts are timed; None times nothing.
        candidates: keeps all candidates, for a trace; otherwise only what a tree can hold is looked at.
    """

    def __init__(
        self,
        head: DraftHead,
        knobs: Knobs,
        capacity: int,
        device: torch.device | str,
        *,
        times: StepTimes | None,
        candidates: bool,
    ) -> None:
        self._head = head
        self._knobs = knobs
        self._times = times
        self._depth = knobs.block_size - 1 if candidates else knobs.depth
        self._trees = Trees.empty(capacity, knobs.width, device)
        shape = (2, capacity, self._depth, knobs.topk)
        self._candidates = torch.zeros(shape, dtype=torch.int64, device=device) if candidates else None

    def __call__(self, hidden_states: torch.Tensor, input_ids: torch.Tensor) -> None:
        """Draft trees; SGLang calls it at the tail of the drafter's graph.

        Args:
            hidden_states: (B * block size, hidden size) of the drafter.
            input_ids: (B * block size,) of the block; each first one is a root.
        """
        block = self._knobs.block_size
        requests = hidden_states.shape[0] // block
        shape = (requests, self._depth, self._knobs.topk)
        drafted = hidden_states.view(requests, block, -1)[:, 1 : 1 + self._depth]
        log_probs, tokens = self._head.top(drafted.flatten(0, 1))
        if self._times is not None:
            self._times.drafted()
        log_probs, tokens = log_probs.view(shape), tokens.view(shape)
        build_trees(log_probs, tokens, input_ids.view(requests, block)[:, 0], self._trees.first(requests))
        if self._candidates is not None:
            self._candidates[0, :requests] = costs_of(log_probs)
            self._candidates[1, :requests] = tokens

    def trees(self, requests: int) -> Trees:
        """What the last call drafted for the first requests."""
        return self._trees.first(requests)

    def candidates(self, requests: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the last call's trees were built from, where all of it is kept.

        Returns:
            (B, D, K) int64 costs on the grid, and tokens.
        """
        if self._candidates is None:
            raise RuntimeError("all candidates must be kept before they are asked for, but got none")
        return self._candidates[0, :requests], self._candidates[1, :requests]
