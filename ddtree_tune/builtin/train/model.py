"""The target (Qwen3) and the drafter (DFlash) in torch, with parameters named as SGLang names them.

Suffixes in shapes: B sequences, T positions, A anchors, K block size, H hidden size. Hidden state
`i` is the output of layer `i`, counted from 0; the drafter reads those of `Shape.taps`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own spelling
from torch import Tensor, nn

Cache = list[tuple[Tensor, Tensor]]
"""Per layer keys and values, each (B, key heads, positions, head size)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of both models."""

    vocabulary: int = 2048
    hidden: int = 192
    layers: int = 6
    heads: int = 4
    key_heads: int = 2
    head: int = 64
    inner: int = 384
    draft_layers: int = 2
    block: int = 16
    taps: tuple[int, ...] = (1, 3, 4)
    positions: int = 8192
    theta: float = 10000.0
    epsilon: float = 1e-6


class Norm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Norm the last axis."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.epsilon)


class Rotary(nn.Module):
    """Sines and cosines of rotary positions, the halves of a head rotated against each other."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        rates = shape.theta ** (-torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.outer(torch.arange(shape.positions + shape.block).float(), rates)
        self.register_buffer("cosines", torch.cat([angles.cos(), angles.cos()], -1), persistent=False)
        self.register_buffer("sines", torch.cat([-angles.sin(), angles.sin()], -1), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Look up (B, n) positions; each result is (B, 1, n, head size)."""
        return self.cosines[positions][:, None], self.sines[positions][:, None]


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary positions to (B, heads, n, head size)."""
    return x * rope[0] + x.roll(x.shape[-1] // 2, -1) * rope[1]


def attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Attend with grouped key heads, in bf16 where autocast is on.

    The heads are repeated by hand: with a mask, torch's memory-saving kernel knows no groups.
    """
    if torch.is_autocast_enabled(query.device.type):
        query, key, value = query.bfloat16(), key.bfloat16(), value.bfloat16()
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)


class Attention(nn.Module):
    """Projections and head norms of one layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head = shape.head
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.key_heads * shape.head, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.key_heads * shape.head, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head, shape.hidden, bias=False)
        self.q_norm, self.k_norm = Norm(shape.head, shape.epsilon), Norm(shape.head, shape.epsilon)

    def split(self, x: Tensor) -> Tensor:
        """Turn (B, n, heads * head size) into (B, heads, n, head size)."""
        return x.unflatten(-1, (-1, self.head)).transpose(1, 2)

    def query(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """Project, norm and rotate the queries."""
        return rotate(self.q_norm(self.split(self.q_proj(x))), rope)

    def key_value(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Project keys and values; only the keys are normed and rotated."""
        return rotate(self.k_norm(self.split(self.k_proj(x))), rope), self.split(self.v_proj(x))

    def output(self, heads: Tensor) -> Tensor:
        """Join the heads and project back."""
        return self.o_proj(heads.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the MLP to the last axis."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One transformer layer; who attends to whom is the caller's."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.epsilon)
        self.mlp = Mlp(shape)
        for name, weight in self.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                nn.init.zeros_(weight)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.5 / shape.hidden**0.5)

    def finish(self, x: Tensor, heads: Tensor) -> Tensor:
        """Add what was attended to, then the MLP."""
        x = x + self.self_attn.output(heads)
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    """Embedding, layers and last norm, under the names of a Qwen3 checkpoint."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.epsilon)
        nn.init.normal_(self.embed_tokens.weight, std=0.05)


@dataclass(frozen=True, slots=True)
class Hidden:
    """What one pass of the target leaves."""

    last: Tensor
    """(B, T, H), before the last norm; the output of the deepest layer that ran."""
    taps: Tensor
    """(B, T, taps * H), the tapped layers' outputs side by side."""


class Target(nn.Module):
    """The causal model; its head is untied, so that the mask token is never emitted."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Backbone(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        self.rotary = Rotary(shape)
        nn.init.normal_(self.lm_head.weight, std=0.02)

    def logits(self, last: Tensor) -> Tensor:
        """Score the next token after the deepest layer's output."""
        scores: Tensor = self.lm_head(self.model.norm(last))
        return scores

    def embed(self, ids: Tensor) -> Tensor:
        """Look up the embedding, which the drafter shares."""
        rows: Tensor = self.model.embed_tokens(ids)
        return rows

    def forward(self, ids: Tensor, cache: Cache | None = None, layers: int | None = None) -> Hidden:
        """Run (B, T) ids from position 0.

        Args:
            ids: int64; what follows a sequence's end is padding, which nobody before it sees.
            cache: filled at the positions that ran.
            layers: how many layers to run; None runs all.
        """
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        x, rope, taps = self.embed(ids), self.rotary(positions), []
        for at, layer in enumerate(self.model.layers[:layers]):
            normed = layer.input_layernorm(x)
            key, value = layer.self_attn.key_value(normed, rope)
            if cache is not None:
                cache[at][0][:, :, : ids.shape[1]] = key
                cache[at][1][:, :, : ids.shape[1]] = value
            x = layer.finish(x, attend(layer.self_attn.query(normed, rope), key, value, causal=True))
            if at in self.shape.taps:
                taps.append(x)
        return Hidden(x, torch.cat(taps, -1))

    def step(self, ids: Tensor, positions: Tensor, cache: Cache, seen: int) -> Tensor:
        """Run one token a sequence against the cache and write it there.

        Args:
            ids: (B,) int64.
            positions: (B,) int64, where each token stands.
            cache: of all positions before.
            seen: cache positions to look at, beyond every position.

        Returns:
            (B, vocabulary) scores of the next tokens.
        """
        rows = torch.arange(len(ids), device=ids.device)
        future = torch.arange(seen, device=ids.device)[None] > positions[:, None]
        x, rope = self.embed(ids)[:, None], self.rotary(positions[:, None])
        for layer, (keys, values) in zip(self.model.layers, cache, strict=True):
            attention, normed = layer.self_attn, layer.input_layernorm(x)
            key, value = attention.key_value(normed, rope)
            keys[rows, :, positions], values[rows, :, positions] = key[:, :, 0].to(keys), value[:, :, 0].to(keys)
            query = attention.query(normed, rope).to(keys).view(len(ids), keys.shape[1], -1, keys.shape[3])
            scores = query * keys.shape[3] ** -0.5 @ keys[:, :, :seen].transpose(-1, -2)
            weights = scores.masked_fill(future[:, None, None], float("-inf")).softmax(-1)
            x = layer.finish(x, (weights @ values[:, :, :seen]).flatten(1, 2)[:, :, None])
        return self.logits(x[:, 0])


class Drafter(nn.Module):
    """Predicts a block of tokens at once from the target's hidden states before an anchor."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.fc = nn.Linear(shape.hidden * len(shape.taps), shape.hidden, bias=False)
        self.hidden_norm = Norm(shape.hidden, shape.epsilon)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.draft_layers))
        self.norm = Norm(shape.hidden, shape.epsilon)
        self.mask_row = nn.Parameter(torch.randn(shape.hidden) * 0.05)
        self.rotary = Rotary(shape)
        nn.init.normal_(self.fc.weight, std=0.5 / shape.hidden**0.5)

    def forward(self, taps: Tensor, anchors: Tensor, at: Tensor, block: int, window: Tensor | None = None) -> Tensor:
        """Draft the tokens after each anchor; the head is the target's.

        Args:
            taps: (B, T, taps * H), the target's hidden states.
            anchors: (B, A, H), the anchors' embeddings.
            at: (B, A) int64, the anchors' positions; position t < anchor is seen.
            block: K, the anchor and K - 1 masked positions.
            window: (B, A) int64, how many positions before the anchor are seen; None sees all.

        Returns:
            (B, A, K, H), normed; position k predicts token k after the anchor.
        """
        rows, length, _ = taps.shape
        drafts, device = at.shape[1], taps.device
        context = self.hidden_norm(self.fc(taps))
        masks = self.mask_row.expand(rows, drafts, block - 1, -1)
        x = torch.cat([anchors[:, :, None], masks], 2).flatten(1, 2)
        rope = self.rotary((at[:, :, None] + torch.arange(block, device=device)).flatten(1))
        positions = torch.arange(length, device=device)
        context_rope = self.rotary(positions[None])
        seen = positions < at[:, :, None]
        if window is not None:
            seen = seen & (positions >= (at - window)[:, :, None])
        group = torch.arange(drafts * block, device=device) // block
        own = (group[:, None] == group).expand(rows, -1, -1)
        mask = torch.cat([seen.repeat_interleave(block, 1), own], -1)[:, None]
        for layer in self.layers:
            attention, normed = layer.self_attn, layer.input_layernorm(x)
            context_key, context_value = attention.key_value(context, context_rope)
            key, value = attention.key_value(normed, rope)
            key, value = torch.cat([context_key, key], 2), torch.cat([context_value, value], 2)
            x = layer.finish(x, attend(attention.query(normed, rope), key, value, mask=mask))
        drafted: Tensor = self.norm(x).unflatten(1, (drafts, block))
        return drafted
