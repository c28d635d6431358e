"""Random drafts, and trees built of them by the plugin and by the reference."""

from dataclasses import dataclass

import numpy as np

from ddtree_tune.core import tree as reference


@dataclass(frozen=True)
class Draft:
    """What a drafter proposes to a batch: (B, D, K) costs on the grid, ascending, and different tokens."""

    costs: np.ndarray
    tokens: np.ndarray
    roots: np.ndarray

    def largest(self):
        """Nodes of the tree that holds every path."""
        _, depth, topk = self.costs.shape
        return sum(topk**level for level in range(1, depth + 1))

    def built(self, budget):
        """The plugin's trees."""
        import torch  # not installed where nothing of the plugin is tested

        from ddtree_tune.sglang_plugin import trees

        out = trees.Trees.empty(len(self.costs), budget + 1, "cpu")
        log_probs = torch.from_numpy(self.costs / -trees.GRID).float()
        assert trees.costs_of(log_probs).tolist() == self.costs.tolist()
        trees.build_trees(log_probs, torch.from_numpy(self.tokens), torch.from_numpy(self.roots), out)
        return out

    def expected(self, budget):
        """The reference's, a tree per request, and the tokens of its nodes without the root."""
        from ddtree_tune.sglang_plugin.trees import GRID

        for costs, tokens in zip(self.costs, self.tokens, strict=True):
            tree = reference.build_tree((-costs / GRID).tolist(), budget)
            at = zip(tree.depths_N, tree.ranks_N, strict=True)
            yield tree, [int(tokens[depth - 1, rank]) for depth, rank in at]


def draft(seed, shape, *, highest=50_000, vocabulary=None):
    """A random draft; few different costs make many equal scores."""
    requests, depth, topk = shape
    random = np.random.default_rng(seed)
    words = vocabulary or topk + 3
    return Draft(
        np.sort(random.integers(0, highest, shape), axis=-1),
        np.ascontiguousarray(np.argsort(random.random((requests, depth, words)), axis=-1)[:, :, :topk]),
        random.integers(0, words, requests),
    )
