"""How one request chooses its next token.

A sampled token takes one uniform number, in the order of the text. So a request with a seed gives
the same text whatever is drafted: speculation only changes how many tokens one pass verifies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a request says about choosing tokens and ending."""

    max_tokens: int
    temperature: float = 1.0
    """0 takes the best token."""
    top_p: float = 1.0
    """Sample from the fewest best tokens that hold this share of the probability."""
    top_k: int = -1
    """Sample from that many best tokens; -1 from all."""
    min_p: float = 0.0
    """Leave out tokens below this share of the best token's probability."""
    seed: int | None = None
    ignore_eos: bool = False
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end the reply, beside the model's own."""

    @property
    def greedy(self) -> bool:
        """Whether the best token is always taken."""
        return self.temperature == 0 or self.top_k == 1


class Sampler:
    """Chooses the tokens of one request."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self.greedy = sampling.greedy
        self._random = np.random.default_rng(sampling.seed)

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The next token.

        Args:
            logits: (vocab,) float32.
        """
        if self.greedy:
            return int(logits.argmax())
        sampling = self._sampling
        weights = np.exp((logits - logits.max()).astype(np.float64) / sampling.temperature)
        order = None
        if sampling.min_p > 0:
            weights[weights < sampling.min_p] = 0.0
        if 0 < sampling.top_k < len(weights) or sampling.top_p < 1:
            order = np.argsort(-weights, kind="stable")
            if sampling.top_k > 0:
                order = order[: sampling.top_k]
            weights = weights[order]
            total = weights.cumsum()
            # A token stays while those before it hold less than the share.
            kept = int(np.searchsorted(total - weights, sampling.top_p * total[-1]))
            order, weights = order[: max(kept, 1)], weights[: max(kept, 1)]
        total = weights.cumsum()
        index = int(np.searchsorted(total, self._random.random() * total[-1], side="right"))
        index = min(index, len(weights) - 1)
        return index if order is None else int(order[index])
