"""What tokens cost where the spec says what a node does.

A node's price is a given fact, and a cost no measurement: it is kept nowhere, and follows from the
throughputs whenever a report is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ddtree_tune.core.fields import Strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.engine import EngineConfig

_MILLION = 1e6


class PriceSpec(Strict):
    """What a node costs, for the cost of tokens and of the sweep."""

    per_node_hour: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Price of one node, all its GPUs together, for an hour."""
    currency: Annotated[str, Field(pattern=r"^\S{1,8}$")] = "USD"
    """Of the price, as it is written behind a number."""

    def per_million(self, output_tps: float) -> float:
        """What a million output tokens cost at a throughput: per_node_hour / (3600 * output_tps) * 10^6.

        The prompts that they answer are in it, for the node's whole time is.
        """
        return self.per_node_hour / (3600 * output_tps) * _MILLION

    def of(self, seconds: float) -> float:
        """What some node time costs."""
        return self.per_node_hour * seconds / 3600


@dataclass(frozen=True, slots=True)
class SettingCost:
    """What a million output tokens cost under one setting."""

    config: EngineConfig
    cells: tuple[tuple[str, float], ...]
    """(cell, cost) of every cell with a scored throughput, in the order of the matrix."""
    mean: float | None
    """Of a million tokens that are spread over the compared cells as these count; None where one is missing."""


def setting_costs(conclusion: Conclusion, price: PriceSpec, weights: Mapping[str, float]) -> tuple[SettingCost, ...]:
    """The cost under each setting that the answer was drawn from.

    Args:
        conclusion: of the sweep.
        price: of a node.
        weights: how much each cell counts, in the order of the matrix.
    """
    found = []
    for setting in conclusion.settings:
        known = dict(setting.output_tps)
        cells = {cell: price.per_million(known[cell]) for cell in weights if cell in known}
        shares = {cell: weights[cell] for cell in conclusion.compared}
        whole = bool(shares) and shares.keys() <= cells.keys()
        mean = sum(share * cells[cell] for cell, share in shares.items()) / sum(shares.values()) if whole else None
        found.append(SettingCost(setting.config, tuple(cells.items()), mean))
    return tuple(found)
