"""The target's pass over a batch's trees, and what it says after every node.

Suffixes: B requests, N nodes with the root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.configs.hybrid_arch import mambaish_config
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative import dflash_utils
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.eagle_utils import TreeMaskMode
from sglang.srt.speculative.spec_utils import GrammarTree, build_grammar_vocab_mask

from ddtree_tune.sglang_plugin.acceptance import keep_likely, sampled_choices
from ddtree_tune.sglang_plugin.placing import place
from ddtree_tune.sglang_plugin.trees import links

if TYPE_CHECKING:
    from ddtree_tune.sglang_plugin.knobs import Knobs
    from ddtree_tune.sglang_plugin.step_times import StepTimes
    from ddtree_tune.sglang_plugin.trees import Trees


@dataclass(frozen=True, slots=True)
class Verified:
    """What the target's pass left."""

    logits_output: Any
    """SGLang's, with a row of logits and of hidden states per node."""
    slots_BN: torch.Tensor
    """int64 cache slots of the nodes, which the scheduler reserved behind each prefix."""
    graphed: bool
    """Whether the pass was replayed from a CUDA graph."""


class TreeVerifier:
    """The target with trees in front of it.

    Args:
        target_worker: SGLang's worker of the target; its graphs are not captured yet.
        knobs: of the trees.
        times: where a step's parts are timed; None times nothing.

    Raises:
        ValueError: the target's state cannot be a tree's.
    """

    def __init__(self, target_worker: Any, knobs: Knobs, times: StepTimes | None) -> None:
        self._worker = target_worker
        self._runner = target_worker.model_runner
        self._knobs = knobs
        self._times = times
        self._own_mask: torch.Tensor | None = None
        _check_target(self._runner)
        dflash_utils.resolve_dflash_verify_mask_policy = _always_masked  # asked when graphs are captured

    def check_mask(self) -> None:
        """Refuse a mask of another form than the one that is written here.

        Raises:
            ValueError: it has one.
        """
        mask = self._runner.attn_backend.verify_mask
        if mask is not None and (mask.mode != TreeMaskMode.FULL_MASK or mask.buffer.dtype != torch.uint8):
            raise ValueError(
                f"DDTREE must have a full verify mask of bytes, but got {mask.mode} of {mask.buffer.dtype}"
            )

    @staticmethod
    def grammar_tree(trees: Trees) -> Any:
        """The trees as SGLang's grammars walk them; the copy to the host starts before the target's pass."""
        return GrammarTree.from_device(*links(trees.parents_BN), trees.tokens_BN)

    def verify(self, batch: Any, draft_input: Any, trees: Trees) -> Verified:
        """One pass of the target over all trees."""
        nodes = self._knobs.width
        mask, in_graph = self._mask(len(batch.seq_lens))
        table = self._runner.req_to_token_pool.req_to_token
        places = place(trees, batch.seq_lens, batch.req_pool_indices, table, depth=self._knobs.depth, mask=mask)
        if self._times is not None:
            self._times.handed()
        verify_input = DFlashVerifyInput(
            draft_token=trees.tokens_BN.reshape(-1),
            positions=places.positions_BN.view(-1),
            draft_token_num=nodes,
            topk=self._knobs.topk,
            custom_mask=mask[:1] if in_graph else mask,  # a graph has the buffer itself; this says that it counts
            capture_hidden_mode=CaptureHiddenMode.FULL,
        )
        batch.out_cache_loc = places.slots_BN.view(-1)
        lengths_cpu, total = batch.seq_lens_cpu, batch.seq_lens_sum
        if lengths_cpu is not None:
            batch.seq_lens_cpu = lengths_cpu + nodes
            batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
        elif draft_input.reserved_seq_lens_cpu is not None:
            batch.seq_lens_cpu = draft_input.reserved_seq_lens_cpu
            batch.seq_lens_sum = int(draft_input.reserved_seq_lens_sum)
        verify_batch, replays = verify_input.prepare_for_verify(batch, self._worker)
        batch.seq_lens_cpu, batch.seq_lens_sum = lengths_cpu, total
        if in_graph and not replays:
            verify_input.custom_mask = mask
            self._runner.attn_backend.init_forward_metadata(verify_batch)
        out = self._worker.forward_batch_generation(
            batch=None, forward_batch=verify_batch, is_verify=True, skip_attn_backend_init=True
        )
        return Verified(out.logits_output, places.slots_BN, bool(out.can_run_cuda_graph))

    def _mask(self, requests: int) -> tuple[torch.Tensor, bool]:
        """The mask to write into, and whether it is the one of the target's graphs."""
        shared = self._runner.attn_backend.verify_mask
        if shared is not None and shared.fits(requests):
            return shared.buffer, True
        nodes = self._knobs.width
        cells = requests * nodes * (self._runner.req_to_token_pool.req_to_token.shape[1] + nodes)
        if self._own_mask is None or self._own_mask.numel() < cells:
            self._own_mask = torch.ones(cells, dtype=torch.uint8, device=self._runner.device)
        return self._own_mask, False

    def adjust(self, batch: Any, verified: Verified, grammar: Any, grammar_barrier: Any) -> None:
        """Penalties, biases and grammars, on every node's logits."""
        logits = verified.logits_output.next_token_logits
        mask = None
        if grammar is not None:
            mask = build_grammar_vocab_mask(
                reqs=batch.reqs,
                tree=grammar,
                sampling_info=batch.sampling_info,
                device=logits.device,
                barrier=grammar_barrier,
            )
        if batch.sampling_info is not None:
            dflash_utils.apply_dflash_verify_logits_adjustments(
                next_token_logits=logits, sampling_info=batch.sampling_info, draft_token_num=self._knobs.width
            )
        if mask is not None:
            mask.apply(logits)

    def choices(self, batch: Any, draft_input: Any, verified: Verified) -> torch.Tensor:
        """(B, N) int64: the target's own next token after each node."""
        requests, nodes, sampling = len(batch.seq_lens), self._knobs.width, batch.sampling_info
        logits = verified.logits_output.next_token_logits
        best = torch.argmax(logits, dim=-1).view(requests, nodes)
        if sampling is None or sampling.is_all_greedy:
            return best
        probs = dflash_utils.build_dflash_verify_target_probs(
            next_token_logits=logits,
            sampling_info=sampling,
            draft_token_num=nodes,
            bs=requests,
            max_top_k=draft_input.max_top_k,
            uniform_top_k_value=draft_input.uniform_top_k_value,
        )
        if sampling.need_min_p_sampling:
            keep_likely(probs, sampling.min_ps.view(-1))
        greedy = (sampling.top_ks == 1).view(-1, 1)
        return torch.where(greedy, best, sampled_choices(probs))


def _always_masked(attn_backend: Any) -> tuple[str, bool]:
    """SGLang's question whether a verify pass has a mask; a tree's has."""
    return type(attn_backend).__name__, True


def _check_target(runner: Any) -> None:
    """Refuse targets whose state cannot be a tree's.

    Raises:
        ValueError: in one sentence.
    """
    if mambaish_config(runner.model_config) is not None:
        raise ValueError("DDTREE must have a target of attention layers alone, but got one with recurrent state")
    if runner.sliding_window_size is not None and runner.sliding_window_size > 0:
        raise ValueError(
            "DDTREE must have a target with full attention, but got a sliding window of "
            f"{runner.sliding_window_size}: its kernel counts nodes and not their depths"
        )
    if not dflash_utils.is_dflash_sampling_verify_available():
        raise ValueError("DDTREE must have sgl_kernel's top-p and top-k kernels, but got a build without them")
