"""SGLang's DFLASH worker with trees: draft, verify, accept, commit.

Prefill, windows, the drafter's cache and the request checks stay DFLASH's. What differs is the
decode step: the drafter's graph ends in trees, the target sees a tree's mask, the accepted path is
moved into a row, and the drafter learns from the hidden states along it.

Everything is launched on the scheduler's forward stream and nothing waits for the device. The
request table is read before the target's pass is launched, never after: from then on the scheduler
may hand a finished request's row to another one.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import torch
from sglang.kernels.ops.speculative.dflash import _prepare_dflash_draft_block_unchecked
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.scheduler import GenerationBatchResult, Scheduler
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_exec
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.draft_worker_common import build_block_pos_offsets, make_draft_block_spec_info
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from ddtree_tune.sglang_plugin import step_times, trace
from ddtree_tune.sglang_plugin.acceptance import Accepted, walk
from ddtree_tune.sglang_plugin.drafting import DraftHead, TreeDrafter
from ddtree_tune.sglang_plugin.knobs import Knobs
from ddtree_tune.sglang_plugin.placing import place
from ddtree_tune.sglang_plugin.verifying import TreeVerifier, Verified

if TYPE_CHECKING:
    from ddtree_tune.sglang_plugin.trees import Trees

_MOVED_AT_ONCE = 128
"""Tokens. SGLang's kernel for caches of keys and values holds all of a launch in registers: on an H200 one of 256
tokens took 0.94 ms where one of 128 took less than 0.15. Its other caches launch for each layer: fewer are better."""

logger = logging.getLogger(__name__)


class DDTreeWorker(DFlashWorkerV2):
    """One rank's worker, as SGLang makes it."""

    def __init__(self, server_args: Any, gpu_id: int, ps: Any, nccl_port: int, target_worker: Any) -> None:
        super().__init__(server_args, gpu_id, ps, nccl_port, target_worker)
        self.knobs = Knobs(
            int(server_args.speculative_num_draft_tokens) - 1,
            int(server_args.speculative_eagle_topk),
            int(server_args.speculative_dflash_block_size),
        )
        self.block_size = self.knobs.block_size  # DFLASH takes it from the verify width
        self.speculative_num_draft_tokens = self.knobs.width
        self._block_pos_offsets = build_block_pos_offsets(length=self.block_size, device=self.device)
        self._draft_block_spec_info = make_draft_block_spec_info(draft_token_num=self.block_size, device=self.device)
        writes = ps.tp_rank == 0
        times, traced = os.environ.get(step_times.VARIABLE), os.environ.get(trace.VARIABLE)
        self._times = step_times.StepTimes(times) if times and writes else None
        self._one_token_a_step = bool(traced)
        self._tracer = self._open_trace(traced) if traced and writes else None
        self._tree_drafter: TreeDrafter | None = None
        self._verifier = TreeVerifier(target_worker, self.knobs, self._times)
        self._told = False

    def _open_trace(self, path: str) -> trace.Tracer:
        arguments = self.server_args
        header = {
            "target": arguments.served_model_name or arguments.model_path,
            "drafter": arguments.speculative_draft_model_path,
            "block_size": self.block_size,
            "window": self.draft_window_size,
            "topk": self.knobs.topk,
            "dtype": str(self.draft_model_runner.dtype).removeprefix("torch."),
        }
        tracer = trace.Tracer(path, header)
        tracer.follow(Scheduler)
        return tracer

    def init_cuda_graphs(self) -> None:
        """Capture the drafter's graphs, trees included."""
        graphs = get_exec().graph.cuda_graph_config.decode.bs or ()
        self._tree_drafter = TreeDrafter(
            DraftHead(getattr(self.model_runner.model, "lm_head", None), self.knobs.topk, get_tp_group()),
            self.knobs,
            max(int(self.model_runner.req_to_token_pool.size), *graphs, 1),
            self.device,
            times=self._times,
            candidates=self._one_token_a_step,
        )
        self._verifier.check_mask()
        self._build_kernels(max(graphs, default=1))
        super().init_cuda_graphs()

    def _build_kernels(self, requests: int) -> None:
        """Build what a decode step launches besides its graphs, so that no batch waits for it.

        All of it happens in slot 0, where SGLang writes what nobody reads. Its kernel that moves keys
        and values is another one for each power of two of tokens.
        """
        longest, depth, table = self.knobs.longest, self.knobs.depth, self.model_runner.req_to_token_pool.req_to_token
        trees, zero = self._trees_of().trees(1), torch.zeros(1, dtype=torch.int64, device=self.device)
        mask = torch.empty(self.knobs.width * (self.knobs.width + 1), dtype=torch.uint8, device=self.device)
        slots = place(trees, zero, zero, torch.zeros_like(table[:1]), depth=depth, mask=mask).slots_BN
        walk(trees, torch.zeros_like(slots), slots, zero, longest=longest, deepest=depth)
        nowhere = torch.zeros(requests, longest, dtype=torch.int64, device=self.device)
        for count in range(1, requests + 1):
            self._move(nowhere[:count], nowhere[:count])

    def _maybe_build_draft_sampler(self) -> TreeDrafter | None:
        """What SGLang captures behind the drafter."""
        return self._tree_drafter

    def forward_batch_generation(self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None) -> Any:
        """One step of a batch: DFLASH's for a prefill and for an idle rank, a tree's otherwise."""
        mode = batch.forward_mode
        if mode.is_extend() or batch.is_extend_in_batch or mode.is_idle() or batch.spec_info is None:
            return super().forward_batch_generation(batch, on_publish, grammar_barrier)
        requests = len(batch.seq_lens)
        batch.seq_lens.record_stream(torch.get_device_module(self.device).current_stream())
        if self._times is not None:
            self._times.begin(requests)
        draft_input, prefix = batch.spec_info, batch.seq_lens
        trees, drafter_graphed = self._draft(batch, draft_input)
        grammar = self._verifier.grammar_tree(trees) if batch.has_grammar else None
        verified = self._verifier.verify(batch, draft_input, trees)
        if self._times is not None:
            self._times.verified(graphs=verified.graphed and drafter_graphed)
        self._verifier.adjust(batch, verified, grammar, grammar_barrier)
        choices = self._verifier.choices(batch, draft_input, verified)
        deepest = 0 if self._one_token_a_step else self.knobs.depth
        accepted = walk(trees, choices, verified.slots_BN, prefix, longest=self.knobs.longest, deepest=deepest)
        if self.knobs.topk > 1 and deepest:  # a chain already stands in a row
            self._move(accepted.targets_BW, accepted.sources_BW)
        if on_publish is not None:
            on_publish(accepted.ends_B)
        self._teach_drafter(accepted, verified)
        if self._times is not None:
            self._times.committed()
        self._tell(requests, accepted, drafter_graphed, verified)
        if self._tracer is not None:
            self._tracer.add(batch.reqs, *self._trees_of().candidates(requests))
        return GenerationBatchResult(
            logits_output=verified.logits_output,
            next_token_ids=accepted.tokens_BW.view(-1),
            accept_lens=accepted.lengths_B,
            can_run_cuda_graph=verified.graphed,
            next_draft_input=self._make_next_draft_input_decode(
                bonus_tokens=accepted.bonus_B, new_seq_lens=accepted.ends_B
            ),
            speculative_num_draft_tokens=self.knobs.longest,  # tokens of a request in next_token_ids
            new_seq_lens=accepted.ends_B,
        )

    def _draft(self, batch: Any, draft_input: Any) -> tuple[Trees, bool]:
        """Fill a block with the drafter and build trees of it."""
        requests, block, prefix = len(batch.seq_lens), self.block_size, batch.seq_lens
        self._ensure_draft_block_buffers(requests)
        ids = self._draft_block_ids_buf[:requests]
        positions = self._draft_block_positions_buf[:requests]
        slots = self._draft_verify_out_cache_loc_buf[:requests]
        _prepare_dflash_draft_block_unchecked(
            bonus_tokens=draft_input.bonus_tokens.view(-1),
            prefix_lens=prefix.view(-1),
            req_pool_indices=batch.req_pool_indices.view(-1),
            req_to_token=self.model_runner.req_to_token_pool.req_to_token,
            block_ids_out=ids,
            positions_out=positions,
            cache_loc_out=slots,
            mask_token_id=int(self._mask_token_id),
        )
        # The scheduler reserves slots for the nodes; a longer block's last ones go to the padding slot.
        # Nobody reads them: the block attends to itself directly, and its cache is written by _teach_drafter.
        slots[:, self.knobs.width :] = 0
        lengths, lengths_cpu, total = self._draft_lengths(batch, draft_input, slots)
        embedded = self.target_worker.model_runner.model.get_input_embeddings()(ids)
        with torch.inference_mode():
            out = self.draft_model_runner.forward(
                ForwardBatch(
                    forward_mode=ForwardMode.TARGET_VERIFY,
                    batch_size=requests,
                    input_ids=ids.flatten(),
                    req_pool_indices=batch.req_pool_indices,
                    seq_lens=lengths,
                    out_cache_loc=slots.reshape(-1),
                    seq_lens_sum=total,
                    seq_lens_cpu=lengths_cpu,
                    positions=positions.reshape(-1),
                    input_embeds=embedded.view(-1, embedded.shape[-1]),
                    spec_algorithm=SpeculativeAlgorithm.DFLASH,
                    spec_info=self._draft_block_spec_info,
                    capture_hidden_mode=CaptureHiddenMode.NULL,
                )
            )
            drafter = self._trees_of()
            graphed = bool(out.can_run_graph) and self._draft_sampler is not None
            if not graphed:
                hidden = out.logits_output.hidden_states
                drafter(hidden.view(requests * block, -1), ids.flatten())
        return drafter.trees(requests), graphed

    def _draft_lengths(self, batch: Any, draft_input: Any, slots: torch.Tensor) -> tuple[torch.Tensor, Any, int]:
        """What the drafter sees of each prefix, on the device and as a bound on the host."""
        requests, prefix = len(batch.seq_lens), batch.seq_lens
        host = self._draft_seq_lens_cpu_buf[:requests]
        if self.use_compact_draft_cache:
            lengths = self._compute_compact_draft_seq_lens(prefix)
            self._fill_compact_seq_lens_cpu_bound(
                batch_seq_lens_cpu=batch.seq_lens_cpu,
                reserved_seq_lens_cpu=draft_input.reserved_seq_lens_cpu,
                draft_prefix_lens=lengths,
                out=host,
            )
            self._rebuild_compact_draft_cache(
                req_pool_indices=batch.req_pool_indices,
                prefix_lens=prefix,
                draft_prefix_lens=lengths,
                verify_out_cache_loc_2d=slots,
                bs=requests,
                block_size=self.block_size,
            )
            return lengths, host, int(host.sum())
        if batch.seq_lens_cpu is not None:
            host.copy_(batch.seq_lens_cpu)
            host.add_(self.block_size)
        elif draft_input.reserved_seq_lens_cpu is not None:
            host.copy_(draft_input.reserved_seq_lens_cpu)
        else:
            host.copy_(prefix.to("cpu", dtype=torch.int32))
        return prefix, host, int(host.sum())

    def _move(self, targets: torch.Tensor, sources: torch.Tensor) -> None:
        """Put the accepted paths' keys and values in a row, (B, W) cache slots, some requests at a time."""
        cache = self.model_runner.token_to_kv_pool_allocator.get_kvcache()
        requests, longest = targets.shape
        step = max(1, _MOVED_AT_ONCE // longest) if isinstance(cache, MHATokenToKVPool) else requests
        for first in range(0, requests, step):
            part = slice(first, first + step)
            cache.move_kv_cache(targets[part].view(-1), sources[part].view(-1))

    def _teach_drafter(self, accepted: Accepted, verified: Verified) -> None:
        """Write the drafter's keys and values of the accepted path from the target's hidden states."""
        hidden = verified.logits_output.hidden_states
        if hidden is None:
            raise RuntimeError("DDTREE must get hidden states from the target's verify pass, but got none")
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=hidden.index_select(0, accepted.rows_BW.view(-1)),
            cache_loc=accepted.targets_BW.view(-1),
            cache_loc_2d=accepted.targets_BW,
            positions=accepted.positions_BW.view(-1),
            commit_lens=accepted.lengths_B,
        )
        verified.logits_output.hidden_states = None  # not to be copied to the host

    def _trees_of(self) -> TreeDrafter:
        if self._tree_drafter is None:
            raise RuntimeError("DDTREE must have been given its graphs before it drafts, but got a batch")
        return self._tree_drafter

    def _tell(self, requests: int, accepted: Accepted, drafter_graphed: bool, verified: Verified) -> None:
        """One line in the log about the first step."""
        if self._told or self.ps.tp_rank != 0:
            return
        self._told = True
        logger.info(
            "DDTREE first step: %d requests, drafter in graph %s, target in graph %s, commits %s",
            requests,
            drafter_graphed,
            verified.graphed,
            accepted.lengths_B.tolist()[:8],
        )
