"""What DDTREE is asked for on the command line, and what of SGLang it cannot work with.

Everything is refused before weights are loaded, in one sentence. Plain Python: no torch, no SGLang.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SIMULATED = "SGLANG_SIMULATE_ACC_LEN"
"""Makes SGLang's own workers pretend an acceptance length."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """The tree that a server drafts and verifies in every step."""

    budget: int
    """Nodes without the root."""
    topk: int
    """Candidates of each position."""
    block_size: int
    """Positions that the drafter fills at once, the anchor included."""

    @property
    def width(self) -> int:
        """Tokens that one verify step sees: the nodes and the root."""
        return self.budget + 1

    @property
    def depth(self) -> int:
        """Of the deepest node that a tree can have."""
        return min(self.block_size - 1, self.budget)

    @property
    def longest(self) -> int:
        """Most tokens that one step commits."""
        return self.depth + 1


def read_knobs(width: int | None, topk: int | None, block_size: int | None, trained: int, vocabulary: int) -> Knobs:
    """Check the three flags of a tree.

    Args:
        width: ``--speculative-num-draft-tokens``.
        topk: ``--speculative-eagle-topk``.
        block_size: ``--speculative-dflash-block-size``; None takes the drafter's own.
        trained: the drafter's own block size.
        vocabulary: tokens of the target's vocabulary.

    Raises:
        ValueError: the first flag that is wrong.
    """
    if width is None or width < 2:
        raise ValueError(
            "--speculative-num-draft-tokens must be at least 2 with DDTREE, the tree's budget and its root, "
            f"but got {width}; a budget of 16 is 17"
        )
    if topk is None or not 1 <= topk <= vocabulary:
        raise ValueError(
            f"--speculative-eagle-topk must be between 1 and the vocabulary's {vocabulary} with DDTREE, candidates of "
            f"a position, but got {topk}"
        )
    block = trained if block_size is None else block_size
    if not 2 <= block <= trained:
        raise ValueError(
            f"--speculative-dflash-block-size must be between 2 and the drafter's own {trained} with DDTREE, "
            f"but got {block}"
        )
    knobs = Knobs(width - 1, topk, block)
    most = _largest_tree(block - 1, topk, knobs.budget)
    if knobs.budget > most:
        raise ValueError(
            f"--speculative-num-draft-tokens must be at most {most + 1} with DDTREE at --speculative-eagle-topk {topk} "
            f"and a block of {block}, which allow no more than {most} nodes and the root, but got {width}"
        )
    return knobs


_MUST = (
    ("page_size", (1,), "--page-size 1: accepted nodes are moved one by one"),
    ("prefill_attention_backend", ("triton",), "--attention-backend triton: its kernels take a tree's mask"),
    ("decode_attention_backend", ("triton",), "--attention-backend triton: its kernels take a tree's mask"),
    ("speculative_draft_attention_backend", (None, "triton"), "--speculative-draft-attention-backend triton"),
    ("sampling_backend", (None, "pytorch", "flashinfer"), "--sampling-backend pytorch"),
    ("speculative_accept_threshold_single", (1.0,), "no --speculative-accept-threshold-single: text would change"),
    ("speculative_accept_threshold_acc", (1.0,), "no --speculative-accept-threshold-acc: text would change"),
    ("speculative_adaptive", (False,), "no --speculative-adaptive: a tree has one size"),
    ("enable_deterministic_inference", (False,), "no --enable-deterministic-inference: its kernel reads another mask"),
    ("enable_two_batch_overlap", (False,), "no --enable-two-batch-overlap: it would split a tree"),
    ("enable_pdmux", (False,), "no --enable-pdmux"),
    ("disaggregation_mode", ("null",), "no --disaggregation-mode"),
    ("dcp_size", (1,), "no --dcp-size: its kernel takes no mask"),
    ("attn_cp_size", (1,), "no --attn-cp-size"),
)
"""Field of the resolved arguments, what it may be, and what to do."""
_BY_DEFAULT = frozenset({"prefill_attention_backend", "decode_attention_backend"})
"""What ``--attention-backend`` says where they are not given."""


def check_engine(arguments: Any, simulated: str | None) -> None:
    """Refuse what would give wrong results later.

    Args:
        arguments: SGLang's resolved arguments, by attribute.
        simulated: the variable ``SIMULATED``; None where it is not set.

    Raises:
        ValueError: the first argument that a tree cannot work with.
    """
    for name, allowed, advice in _MUST:
        found = getattr(arguments, name)
        if found is None and name in _BY_DEFAULT:
            found = arguments.attention_backend
        if found not in allowed:
            raise ValueError(f"DDTREE must have {name} {_either(allowed)}, but got {found!r}; use {advice}")
    if simulated is not None and float(simulated) > 0:
        raise ValueError(f"{SIMULATED} must be unset with DDTREE, whose acceptance is real, but got {simulated}")


def _either(allowed: tuple[object, ...]) -> str:
    return " or ".join(repr(one) for one in allowed)


def _largest_tree(depth: int, topk: int, enough: int) -> int:
    """Nodes of the tree of every path; counting stops once there are ``enough``."""
    nodes, level = 0, 1
    for _ in range(depth):
        level *= topk
        nodes += level
        if nodes >= enough:
            break
    return nodes
