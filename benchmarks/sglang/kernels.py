"""Our kernels on a GPU: equal to the reference, and how long they take: ``python -m benchmarks.sglang.kernels``.

Drafts are random logits of 2,048 tokens, cut to the best. Times are medians of replays of a CUDA
graph that holds one launch. Prints a line per kernel and size; ends with 1 where anything differs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from triton.testing import do_bench_cudagraph

from ddtree_tune.core import tree as reference
from ddtree_tune.sglang_plugin.acceptance import Accepted, walk
from ddtree_tune.sglang_plugin.placing import Places, place
from ddtree_tune.sglang_plugin.trees import GRID, Trees, build_trees, costs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH, VOCABULARY, CONTEXT = 15, 2_048, 4_096
SIZES = ((4, 2), (16, 4), (64, 8), (256, 8), (1_024, 16))
BATCHES = (1, 16, 64)
_FIRST = 0.8
"""Share of nodes behind which the target says the first candidate."""


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of drafts, and what a step knows besides."""

    log_probs: torch.Tensor
    tokens: torch.Tensor
    roots: torch.Tensor
    prefix: torch.Tensor
    rows: torch.Tensor
    table: torch.Tensor
    choices: torch.Tensor
    mask: torch.Tensor
    budget: int

    @property
    def longest(self) -> int:
        """Nodes of the longest path."""
        return min(DEPTH, self.budget) + 1

    def build(self, out: Trees) -> None:
        """Launch the first kernel."""
        build_trees(self.log_probs, self.tokens, self.roots, out)

    def choose(self, trees: Trees) -> None:
        """Let the target say what a tree is likely to hold: at every node the first candidate, or the second."""
        offered = self.tokens[:, :, : min(2, self.tokens.shape[2])]
        below = trees.depths_BN.clamp(max=DEPTH - 1)
        which = torch.rand(below.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(7)) > _FIRST
        at = below * offered.shape[2] + which.long().clamp(max=offered.shape[2] - 1)
        self.choices.copy_(offered.flatten(1).gather(1, at))

    def place(self, trees: Trees) -> Places:
        """Launch the second."""
        return place(trees, self.prefix, self.rows, self.table, depth=self.longest - 1, mask=self.mask)

    def walk(self, trees: Trees, places: Places) -> Accepted:
        """Launch the third."""
        return walk(
            trees, self.choices, places.slots_BN, self.prefix, longest=self.longest, deepest=self.longest - 1
        )  # fmt: skip


def case(requests: int, budget: int, topk: int) -> Case:
    """Random drafts with a few exact ties; the target has not spoken yet."""
    made = torch.Generator("cuda").manual_seed(requests * 1_000 + budget)
    logits = torch.randn(requests, DEPTH, VOCABULARY, device="cuda", generator=made).mul_(3).bfloat16().float()
    log_probs, tokens = torch.log_softmax(logits, -1).topk(topk, -1)
    nodes = budget + 1
    prefix = torch.randint(0, CONTEXT - nodes, (requests,), device="cuda", generator=made)
    table = torch.arange(requests * CONTEXT, dtype=torch.int32, device="cuda").view(requests, CONTEXT)
    return Case(
        log_probs.contiguous(), tokens.contiguous(), torch.arange(requests, device="cuda"), prefix,
        torch.randperm(requests, device="cuda", generator=made), table,
        torch.zeros(requests, nodes, dtype=torch.int64, device="cuda"),
        torch.full((int((nodes * (prefix + nodes)).sum()),), 7, dtype=torch.uint8, device="cuda"), budget,
    )  # fmt: skip


def differences(one: Case, trees: Trees, places: Places, accepted: Accepted) -> Iterator[str]:
    """Where the kernels do not say what the reference says."""
    costs, at, nodes = costs_of(one.log_probs).cpu().numpy(), 0, one.budget + 1
    mask, choices = one.mask.cpu().numpy(), one.choices.tolist()
    for request, length in enumerate(one.prefix.tolist()):
        tree = reference.build_tree((-costs[request] / GRID).tolist(), one.budget)
        if [0, *tree.parents_N] != trees.parents_BN[request].tolist():
            yield f"tree of request {request}"
        cells = mask[at : at + nodes * (length + nodes)].reshape(nodes, -1)[:, length:]
        if not np.array_equal(cells, reference.visibility(tree)):
            yield f"mask of request {request}"
        at += nodes * (length + nodes)
        tokens = trees.tokens_BN[request, 1:].tolist()
        path = reference.walk(tree, tokens, choices[request])
        if [request * nodes + node for node in path] != accepted.rows_BW[request, : len(path)].tolist():
            yield f"path of request {request}"
        if int(accepted.lengths_B[request]) != len(path):
            yield f"length of request {request}"
        if [length, *(length + depth for depth in tree.depths_N)] != places.positions_BN[request].tolist():
            yield f"positions of request {request}"


def main() -> int:
    """Compare and time."""
    wrong = 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds", flush=True)
    for budget, topk in SIZES:
        for requests in BATCHES:
            one = case(requests, budget, topk)
            trees = Trees.empty(requests, budget + 1, "cuda")
            one.build(trees)
            one.choose(trees)
            places = one.place(trees)
            accepted = one.walk(trees, places)
            found = list(differences(one, trees, places, accepted))
            wrong += len(found)
            times = [
                1_000 * do_bench_cudagraph(launch, return_mode="median")
                for launch in (
                    lambda one=one, trees=trees: one.build(trees),
                    lambda one=one, trees=trees: one.place(trees),
                    lambda one=one, trees=trees, places=places: one.walk(trees, places),
                )
            ]
            said = "; ".join(found[:3]) or f"equal, {accepted.lengths_B.float().mean():.2f} tokens a step"
            print(
                f"{budget}/{topk} x{requests}: build {times[0]:.1f} place {times[1]:.1f} walk {times[2]:.1f}; {said}",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
