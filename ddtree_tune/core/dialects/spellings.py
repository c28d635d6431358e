"""The builds of SGLang whose spelling is known.

Flags and fields of stock SGLang are those of 0.5.17 and 0.5.23, read in their sources; where the
two differ, the spelling that both take is used. Those of the pull request are of its files at
93e9850.
"""

from __future__ import annotations

from ddtree_tune.core.engine_spec import Knob, Speculating, Spelling

_WINDOW = Knob(flag="--speculative-draft-window-size", read="speculative_draft_window_size")
_TREE_KERNELS = ("--attention-backend", "triton", "--page-size", "1")
"""What holds a tree mask: on SM100 the stock choice for MLA is trtllm_mla at page 64, which has no path for one."""

STOCK_DFLASH = Spelling(tree=None, window=_WINDOW, tree_args=())
"""Stock SGLang, chains alone."""

PLUGIN = Spelling(
    tree=Speculating(algorithm="DDTREE"),
    budget=Knob(flag="--speculative-num-draft-tokens", plus=1, read="speculative_num_draft_tokens"),
    topk=Knob(flag="--speculative-eagle-topk", read="speculative_eagle_topk"),
    window=_WINDOW,
    tree_args=_TREE_KERNELS,
)
"""Stock SGLang with our plugin. A budget counts the nodes below the root, SGLang the tokens verified."""

PR_29907 = Spelling(
    tree=Speculating(algorithm="DDTREE"),
    budget=Knob(flag="--speculative-ddtree-budget", read="speculative_ddtree_budget"),
    topk=Knob(env="SGLANG_DDTREE_MAX_TOPK"),
    window=_WINDOW,
    # Its trees switch the overlap scheduler off without a word; a chain that is to be compared must do so too.
    tree_args=(*_TREE_KERNELS, "--disable-overlap-schedule"),
)
"""SGLang with pull request 29907."""
