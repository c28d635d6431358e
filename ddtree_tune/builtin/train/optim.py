"""Muon for matrices and AdamW for the rest, under one learning-rate schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

MOMENTUM, BETAS, WEIGHT_DECAY = 0.95, (0.9, 0.95), 0.01
NEWTON_SCHULZ = (3.4445, -4.775, 2.0315)
"""Coefficients of the quintic iteration. Source: Keller Jordan, "Muon", 2024."""
LOWEST_RATE = 0.02
"""Share of the learning rate that is left at the end."""


def orthogonalise(matrices: Tensor) -> Tensor:
    """Push the singular values of (n, rows, columns) matrices towards 1 in five steps."""
    first, third, fifth = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2).contiguous() if tall else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = first * x + torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonal; matrices of one shape are updated together."""

    def __init__(self, parameters: Iterable[Tensor], rate: float) -> None:
        super().__init__(list(parameters), {"lr": rate})

    def step(self, closure: Any = None) -> None:
        """Update every matrix that has a gradient."""
        if closure is not None:
            raise NotImplementedError("Muon takes no closure")
        with torch.no_grad():
            for group in self.param_groups:
                shapes: dict[torch.Size, list[Tensor]] = {}
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        shapes.setdefault(parameter.shape, []).append(parameter)
                for shape, alike in shapes.items():
                    updates = orthogonalise(torch.stack([self._momentum(parameter) for parameter in alike]))
                    scale = group["lr"] * 0.2 * max(shape) ** 0.5
                    for parameter, update in zip(alike, updates, strict=True):
                        parameter.mul_(1 - group["lr"] * WEIGHT_DECAY).add_(update, alpha=-scale)

    def _momentum(self, parameter: Tensor) -> Tensor:
        average = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        average.lerp_(parameter.grad, 1 - MOMENTUM)
        return parameter.grad.lerp(average, MOMENTUM)


class Optimizer:
    """Both optimizers of a model, stepped as one.

    Args:
        model: whose parameters to train; embeddings, heads and vectors go to AdamW.
        rate: AdamW's learning rate.
        matrix_rate: Muon's.
        warmup_steps: steps to reach the full rate.
    """

    def __init__(self, model: nn.Module, rate: float, matrix_rate: float, warmup_steps: int) -> None:
        named = dict(model.named_parameters())
        matrices = [
            name for name, one in named.items() if one.dim() == 2 and "embed" not in name and "head" not in name
        ]
        rest = [one for name, one in named.items() if name not in matrices]
        self.parameters, self.warmup_steps, self.steps = list(named.values()), warmup_steps, 0
        self._both = (
            (Muon([named[name] for name in matrices], matrix_rate), matrix_rate),
            (torch.optim.AdamW(rest, lr=rate, betas=BETAS, weight_decay=0.0), rate),
        )

    def step(self, progress: float) -> None:
        """Clip, update and clear the gradients.

        Args:
            progress: share of the training that is done; after 0.4 the rate falls to nearly 0.
        """
        self.steps += 1
        warm = min(1.0, self.steps / self.warmup_steps)
        cool = 1.0 if progress < 0.4 else max(LOWEST_RATE, 1 - (progress - 0.4) / 0.6)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimizer, rate in self._both:
            for group in optimizer.param_groups:
                group["lr"] = rate * warm * cool
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
