"""The algorithm as SGLang's launcher and scheduler see it: flags, widths, worker.

The knobs are SGLang's own flags, which ``/server_info`` reports as they were resolved:
``--speculative-num-draft-tokens`` (budget and root), ``--speculative-eagle-topk``,
``--speculative-dflash-block-size`` and ``--speculative-draft-window-size``.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from ddtree_tune.sglang_plugin.knobs import SIMULATED, check_engine, read_knobs
from ddtree_tune.sglang_plugin.signatures import require_supported
from ddtree_tune.sglang_plugin.trace import VARIABLE as TRACE

logger = logging.getLogger(__name__)


class DDTreeAlgorithm(CustomSpecAlgo):
    """DFLASH with trees: one of its family, with its own widths and worker."""

    def is_dflash_family(self) -> bool:
        """Its drafts, caches and request checks are DFLASH's."""
        return True

    def supports_target_verify_for_draft(self) -> bool:
        """The drafter runs in the mode of a verify pass."""
        return True

    def supports_grammar_overlap(self) -> bool:
        """The worker waits for the grammar behind the target's launch."""
        return True

    def need_topk(self) -> bool:
        """No candidates travel from step to step."""
        return False

    def carries_draft_hidden_states(self) -> bool:
        """Nor do hidden states."""
        return False

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        """What the overlapping scheduler keeps between steps."""
        from sglang.srt.managers.overlap_utils import FutureMap  # noqa: PLC0415 - SGLang's modules import each other

        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def get_num_tokens_per_req_for_target_verify(self, num_draft_tokens: int, is_draft_worker: bool) -> int:
        """The drafter fills a block, the target verifies a tree."""
        if not is_draft_worker:
            return num_draft_tokens
        from sglang.srt.runtime_context import get_spec  # noqa: PLC0415 - SGLang's modules import each other

        return int(get_spec().speculative_dflash_block_size)

    def handle_server_args(self, server_args: Any) -> None:
        """Check what was asked, and complete it as DFLASH does.

        Raises:
            ValueError: the first thing that is wrong.
        """
        require_supported()
        from sglang.srt.arg_groups.overrides import resolved_view  # noqa: PLC0415 - after the check
        from sglang.srt.arg_groups.speculative_hook import _handle_dflash  # noqa: PLC0415 - after the check

        check_engine(resolved_view(server_args), os.environ.get(SIMULATED))
        width, topk = server_args.speculative_num_draft_tokens, server_args.speculative_eagle_topk
        block, window = server_args.speculative_dflash_block_size, server_args.speculative_draft_window_size
        for flag in ("num_draft_tokens", "eagle_topk", "dflash_block_size", "draft_window_size"):
            setattr(server_args, f"speculative_{flag}", None)
        _handle_dflash(server_args)  # reads the drafter's own block size
        trained = int(server_args.speculative_num_draft_tokens)
        knobs = read_knobs(width, topk, block, trained, int(server_args.get_model_config().vocab_size))
        if window is not None and window < knobs.block_size:
            raise ValueError(
                f"--speculative-draft-window-size must be at least the block's {knobs.block_size} with DDTREE, "
                f"but got {window}"
            )
        server_args.speculative_num_draft_tokens = knobs.width
        server_args.speculative_eagle_topk = knobs.topk
        server_args.speculative_dflash_block_size = knobs.block_size
        server_args.speculative_draft_window_size = window
        if os.environ.get(TRACE):
            server_args.disable_overlap_schedule = True  # each step's tokens are known before the next
        logger.info(
            "DDTREE: budget %d, topk %d, block %d, window %s", knobs.budget, knobs.topk, knobs.block_size, window
        )


def add(name: str) -> None:
    """Register the algorithm.

    Args:
        name: what ``--speculative-algorithm`` calls it.
    """

    def worker(server_args: Any) -> type:  # noqa: ARG001 - as SGLang calls it
        require_supported()
        from ddtree_tune.sglang_plugin.worker import DDTreeWorker  # noqa: PLC0415 - only where a model is loaded

        return DDTreeWorker

    SpeculativeAlgorithm.register(name, supports_overlap=True, spec_class=DDTreeAlgorithm)(worker)
