"""The two training loops: target on drawn chats, drafter on the target's own replies.

Both run for a number of seconds, so how many steps they take depends on the machine; the record
says how many it was.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own spelling

from ddtree_tune.builtin.train.model import Drafter, Target
from ddtree_tune.builtin.train.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from ddtree_tune.builtin.train.data import Batch, Feed
    from ddtree_tune.builtin.train.model import Shape

CONTEXT_SHARE = 0.35
"""Weight of the batch with contexts in the loss; the one without has the rest."""
WINDOWS = (64, 128, 256, 512, 1024, 1_000_000)
DECAY = {16: 7.0, 8: 4.0}
"""Per block size: position k counts exp(-(k - 1) / decay), since later ones are reached less often."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A prompt and what the target answered."""

    prompt: Sequence[int]
    tokens: Sequence[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Mark:
    """A drafter as it was at some time of its training, rounded to bf16."""

    name: str
    step: int
    seconds: float
    weights: dict[str, Tensor]


@dataclass(slots=True)
class History:
    """What a loop did."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)


def rounded(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy weights as bf16 stores them, in fp32."""
    return {name: one.detach().bfloat16().float().clone() for name, one in state.items()}


def train_target(
    shape: Shape, feed: Feed, device: str, seconds: float, say: Callable[[str], None]
) -> tuple[Target, History]:
    """Train the target for ``seconds`` and round its weights to bf16."""
    target = Target(shape).to(device)
    optimizer, history, mean = Optimizer(target, 3e-3, 6e-3, warmup_steps=100), History(), None
    bare, padded = feed.get()  # the clock starts when the workers are up
    begun = time.perf_counter()
    while (spent := time.perf_counter() - begun) < seconds or not history.steps:
        losses: list[Tensor] = []
        for batch, share in ((bare, 1 - CONTEXT_SHARE), (padded, CONTEXT_SHARE)):
            (share * _target_loss(target, batch, losses)).backward()
            history.tokens += batch.ids.size
        optimizer.step(spent / seconds)
        bare, padded = feed.get()
        history.steps += 1
        now = torch.stack(losses)
        mean = now if mean is None else mean.lerp(now, 0.02)
        if history.steps % 100 == 0:
            _note(history, spent, {"reply_ce": mean[0].item(), "padded_reply_ce": mean[1].item()}, say, "target")
    history.seconds = time.perf_counter() - begun
    target.load_state_dict(rounded(target.state_dict()))
    return target.eval().requires_grad_(requires_grad=False), history


def _target_loss(target: Target, batch: Batch, losses: list[Tensor]) -> Tensor:
    """Weigh the cross-entropy of a batch; appends the mean over reply tokens to ``losses``."""
    device = target.lm_head.weight.device
    ids = torch.from_numpy(batch.ids.astype(np.int64)).to(device, non_blocking=True)
    weights = torch.from_numpy(batch.weights).to(device, non_blocking=True)[:, 1:]
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        scores = target.logits(target(ids).last[:, :-1])
    loss = F.cross_entropy(scores.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(weights.shape)
    replies = weights == 1
    losses.append((loss.detach() * replies).sum() / replies.sum().clamp(min=1))
    weighed: Tensor = (loss * weights).sum() / weights.sum()
    return weighed


def reply_batches(replies: Sequence[Reply], rng: random.Random, tokens: int) -> Iterator[list[Reply]]:
    """Yield batches of like length without end, in random order."""
    while True:
        order = rng.sample(range(len(replies)), len(replies))
        groups: list[list[Reply]] = []
        for at in range(0, len(order), 4096):
            group: list[Reply] = []
            for reply in sorted((replies[one] for one in order[at : at + 4096]), key=len):
                if group and len(reply) * (len(group) + 1) > tokens:
                    groups.append(group)
                    group = []
                group.append(reply)
            groups.append(group)
        rng.shuffle(groups)
        yield from groups


def train_drafter(
    target: Target,
    replies: Sequence[Reply],
    seconds: float,
    *,
    marks: Sequence[float],
    tokens: int,
    say: Callable[[str], None],
) -> tuple[list[Mark], History]:
    """Train a drafter and keep it at several times.

    Args:
        target: frozen; its hidden states, embedding and head are the drafter's.
        replies: what to learn; anchors lie in the reply.
        seconds: how long.
        marks: seconds at which to keep a copy; the end is kept as "final".
        tokens: padded size of a batch.
        say: where progress goes.
    """
    device = target.lm_head.weight.device
    drafter = Drafter(target.shape).to(device)
    optimizer, history, begun = Optimizer(drafter, 2e-3, 6e-3, warmup_steps=60), History(), time.perf_counter()
    rng, kept, mean = random.Random(3), list[Mark](), None
    groups, waiting = reply_batches(replies, rng, tokens), sorted(marks)
    while (spent := time.perf_counter() - begun) < seconds or not history.steps:
        block = target.shape.block if rng.random() < 0.7 else target.shape.block // 2
        windowed = rng.random() < 0.5
        group = next(groups)
        drafts = min(96, max(4, tokens // (10 * len(group))))
        loss, accepted = _drafter_loss(target, drafter, group, block, drafts=drafts, windowed=windowed)
        loss.backward()
        optimizer.step(spent / seconds)
        history.steps += 1
        history.tokens += sum(map(len, group))
        now = torch.stack([loss.detach(), accepted])
        mean = now if mean is None else mean.lerp(now, 0.03)
        if history.steps % 50 == 0:
            _note(history, spent, {"loss": mean[0].item(), "chain": mean[1].item()}, say, "drafter")
        if waiting and spent >= waiting[0]:
            kept.append(Mark(f"{waiting.pop(0):g}s", history.steps, spent, rounded(drafter.state_dict())))
    history.seconds = time.perf_counter() - begun
    kept.append(Mark("final", history.steps, history.seconds, rounded(drafter.state_dict())))
    return kept, history


def _drafter_loss(
    target: Target, drafter: Drafter, group: list[Reply], block: int, *, drafts: int, windowed: bool
) -> tuple[Tensor, Tensor]:
    """Draft at random anchors of a batch; gives the loss and the mean accepted length of the chain."""
    device = target.lm_head.weight.device
    padded = np.zeros((len(group), max(map(len, group))), np.int64)
    for row, reply in enumerate(group):
        padded[row, : len(reply)] = [*reply.prompt, *reply.tokens]
    ids = torch.from_numpy(padded).to(device)
    starts = torch.tensor([len(reply.prompt) for reply in group], device=device)[:, None]
    ends = torch.tensor([len(reply) for reply in group], device=device)[:, None]
    at = starts + (torch.rand(len(group), drafts, device=device) * (ends - starts - 1)).long()
    window = torch.tensor(WINDOWS, device=device)[torch.randint(len(WINDOWS), at.shape, device=device)]
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        with torch.no_grad():
            taps = target(ids, layers=max(target.shape.taps) + 1).taps
        hidden = drafter(taps, target.embed(ids.gather(1, at)), at, block, window if windowed else None)
        scores = F.linear(hidden[:, :, 1:], target.lm_head.weight).float()
    places = at[:, :, None] + torch.arange(1, block, device=device)
    real = places < ends[:, :, None]
    wanted = ids.gather(1, places.clamp(max=ids.shape[1] - 1).flatten(1)).view(places.shape)
    loss = F.cross_entropy(scores.flatten(0, 2), wanted.flatten(), reduction="none").view(places.shape)
    weights = real * torch.exp(-torch.arange(block - 1, device=device).float() / DECAY.get(block, block / 2))
    with torch.no_grad():
        hits = (scores.argmax(-1) == wanted) & real
        accepted = hits.float().cumprod(-1).sum(-1).mean() + 1
    return (loss * weights).sum() / weights.sum(), accepted


def _note(history: History, spent: float, values: dict[str, float], say: Callable[[str], None], who: str) -> None:
    row: dict[str, Any] = {"step": history.steps, "seconds": round(spent, 1)}
    row |= {name: round(value, 4) for name, value in values.items()}
    history.curve.append(row)
    say(f"{who} {row} Mtok {history.tokens / 1e6:.1f}")
