"""A model folder as SGLang loads it, turned into the arrays that NumPy multiplies fastest.

Three rewrites, all exact up to rounding: projections that read the same input are one matrix;
a norm's weight is folded into the matrix behind it, times the root of its size, so that a norm
only divides by the root of a sum of squares; and the dimensions of queries and keys are reordered
so that a rotary pair is one complex number. Everything is float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
import safetensors
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree_tune.core.errors import EngineError, FailureClass

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

Positive = Annotated[int, Field(ge=1)]


class ModelConfig(BaseModel):
    """The fields of a Qwen3 ``config.json`` that the engine reads; others are left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    architectures: tuple[Literal["Qwen3ForCausalLM", "DFlashDraftModel"], ...]
    model_type: Literal["qwen3"]
    hidden_size: Positive
    intermediate_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    num_key_value_heads: Positive
    head_dim: Positive
    vocab_size: Positive
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: None = None
    max_position_embeddings: Positive
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    tie_word_embeddings: bool = False


class DFlashConfig(BaseModel):
    """What the drafter needs to know about the target."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    """Target layers whose outputs the drafter reads, from 0."""


class DraftConfig(ModelConfig):
    """A DFlash drafter's ``config.json``."""

    block_size: Annotated[int, Field(ge=2)]
    num_target_layers: Positive
    dflash_config: DFlashConfig


class GenerationConfig(BaseModel):
    """The part of ``generation_config.json`` that ends a reply."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    eos_token_id: int | tuple[int, ...]

    @property
    def stop_ids(self) -> frozenset[int]:
        """Every token that ends a reply."""
        return frozenset([self.eos_token_id] if isinstance(self.eos_token_id, int) else self.eos_token_id)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer; the two input norms are folded into ``qkv`` and ``gate_up``."""

    qkv: NDArray[np.float32]
    """(hidden, (heads + 2 kv_heads) head_dim) float32."""
    qk_norm: NDArray[np.float32]
    """(heads + kv_heads, head_dim) float32; the softmax scale is folded into the queries' rows."""
    out: NDArray[np.float32]
    """(heads head_dim, hidden) float32."""
    gate_up: NDArray[np.float32]
    """(hidden, 2 ffn) float32; the gate's half is negated, see `layers.swiglu`."""
    down: NDArray[np.float32]
    """(ffn, hidden) float32, negated for the same reason."""


@dataclass(frozen=True, slots=True)
class TargetWeights:
    """The target model."""

    config: ModelConfig
    stop_ids: frozenset[int]
    embedding: NDArray[np.float32]
    """(vocab, hidden) float32."""
    layers: tuple[LayerWeights, ...]
    final_norm: NDArray[np.float32]
    """(hidden,) float32; not folded, because the drafter uses the same head."""
    head: NDArray[np.float32]
    """(hidden, vocab) float32."""


@dataclass(frozen=True, slots=True)
class DraftWeights:
    """The drafter, which borrows the target's embedding and head."""

    config: DraftConfig
    fc: NDArray[np.float32]
    """(taps hidden, hidden) float32: target features to drafter context."""
    context_kv: NDArray[np.float32]
    """(hidden, layers 2 kv_heads head_dim) float32: every layer's keys and values of the context;
    the context norm is folded in."""
    context_k_norm: NDArray[np.float32]
    """(layers, kv_heads, head_dim) float32."""
    layers: tuple[LayerWeights, ...]
    final_norm: NDArray[np.float32]
    """(hidden,) float32."""


Config = TypeVar("Config", bound=BaseModel)


def load_target(folder: Path) -> TargetWeights:
    """Read a target.

    Raises:
        EngineError: a file is missing or is not what the engine can run.
    """
    config = read_json(folder / "config.json", ModelConfig)
    stop = read_json(folder / "generation_config.json", GenerationConfig)
    tensors = _Tensors(folder / "model.safetensors")
    embedding = tensors.take("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
    if config.tie_word_embeddings:
        head = embedding
    else:
        head = tensors.take("lm_head.weight", config.vocab_size, config.hidden_size)
    return TargetWeights(
        config,
        stop.stop_ids,
        embedding,
        tuple(_layer(tensors, f"model.layers.{index}", config) for index in range(config.num_hidden_layers)),
        tensors.take("model.norm.weight", config.hidden_size) * np.float32(config.hidden_size**0.5),
        np.ascontiguousarray(head.T),
    )


def load_drafter(folder: Path, target: TargetWeights) -> DraftWeights:
    """Read the drafter of a target.

    Raises:
        EngineError: a file is missing, cannot be run, or belongs to another target.
    """
    config = read_json(folder / "config.json", DraftConfig)
    taps = config.dflash_config.target_layer_ids
    for name, drafter_value, target_value in (
        ("hidden_size", config.hidden_size, target.config.hidden_size),
        ("vocab_size", config.vocab_size, target.config.vocab_size),
        ("num_target_layers", config.num_target_layers, target.config.num_hidden_layers),
    ):
        if drafter_value != target_value:
            raise EngineError(
                f"the drafter's {name} must be the target's {target_value}, but got {drafter_value} in {folder}; "
                "give the drafter that was trained for this target",
                FailureClass.INVALID_CONFIG,
            )
    if (
        not taps
        or max(taps) >= target.config.num_hidden_layers
        or config.dflash_config.mask_token_id >= (target.config.vocab_size)
    ):
        raise EngineError(
            f"dflash_config must name layers and a mask token of the target, but got "
            f"{config.dflash_config} in {folder}",
            FailureClass.INVALID_CONFIG,
        )
    tensors = _Tensors(folder / "model.safetensors")
    layers = tuple(_layer(tensors, f"layers.{index}", config) for index in range(config.num_hidden_layers))
    root = np.float32(config.hidden_size**0.5)
    hidden_norm = tensors.take("hidden_norm.weight", config.hidden_size) * root
    key_values = []
    for index in range(config.num_hidden_layers):
        name = f"layers.{index}.self_attn"
        width = config.num_key_value_heads * config.head_dim
        keys = tensors.take(f"{name}.k_proj.weight", width, config.hidden_size)
        values = tensors.take(f"{name}.v_proj.weight", width, config.hidden_size)
        key_values += [_pair_rows(keys, config.head_dim), values]
    return DraftWeights(
        config,
        np.ascontiguousarray(tensors.take("fc.weight", config.hidden_size, len(taps) * config.hidden_size).T),
        np.ascontiguousarray((np.concatenate(key_values) * hidden_norm).T),
        np.stack([layer.qk_norm[config.num_attention_heads :] for layer in layers]),
        layers,
        tensors.take("norm.weight", config.hidden_size) * root,
    )


def read_json(path: Path, kind: type[Config]) -> Config:
    """Read one JSON file of a model folder.

    Raises:
        EngineError: the file is missing, or a field is not what the engine can run.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise EngineError(
            f"{path} must be readable, but got {error.strerror}; give a folder as SGLang loads it",
            FailureClass.INVALID_CONFIG,
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "content"
        raise EngineError(
            f"{path}: {field}: {first['msg']}, but got {first['input']!r:.80}", FailureClass.INVALID_CONFIG
        ) from None


class _Tensors:
    """The tensors of one safetensors file, as float32."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            found: list[tuple[str, dict[str, Any]]] = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        except (OSError, safetensors.SafetensorError) as error:
            raise EngineError(
                f"{path} must be a safetensors file, but got {error}", FailureClass.INVALID_CONFIG
            ) from None
        self._found = dict(found)

    def take(self, name: str, *shape: int) -> NDArray[np.float32]:
        """One tensor of the expected shape."""
        entry = self._found.get(name)
        if entry is None or tuple(entry["shape"]) != shape:
            got = "nothing" if entry is None else tuple(entry["shape"])
            raise EngineError(
                f"{self._path} must hold {name} of shape {shape}, but got {got}", FailureClass.INVALID_CONFIG
            )
        raw = entry["data"]
        match entry["dtype"]:
            case "BF16":
                # bfloat16 is the upper half of a float32.
                flat = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
            case "F16":
                flat = np.frombuffer(raw, "<f2").astype(np.float32)
            case "F32":
                flat = np.frombuffer(raw, "<f4").astype(np.float32)
            case other:
                raise EngineError(
                    f"{self._path}: {name} must be BF16, F16 or F32, but got {other}", FailureClass.INVALID_CONFIG
                )
        return flat.reshape(shape)


def _layer(tensors: _Tensors, name: str, config: ModelConfig) -> LayerWeights:
    hidden, head_dim = config.hidden_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    ffn = config.intermediate_size
    attention_norm = tensors.take(f"{name}.input_layernorm.weight", hidden) * np.float32(hidden**0.5)
    mlp_norm = tensors.take(f"{name}.post_attention_layernorm.weight", hidden) * np.float32(hidden**0.5)
    queries = tensors.take(f"{name}.self_attn.q_proj.weight", heads * head_dim, hidden)
    keys = tensors.take(f"{name}.self_attn.k_proj.weight", kv_heads * head_dim, hidden)
    values = tensors.take(f"{name}.self_attn.v_proj.weight", kv_heads * head_dim, hidden)
    qkv = np.concatenate([_pair_rows(queries, head_dim), _pair_rows(keys, head_dim), values]) * attention_norm
    # The softmax scale, head_dim ** -0.5, cancels the norm's head_dim ** 0.5 in the queries.
    q_norm = _pair_rows(tensors.take(f"{name}.self_attn.q_norm.weight", head_dim), head_dim)
    k_norm = _pair_rows(tensors.take(f"{name}.self_attn.k_norm.weight", head_dim), head_dim)
    gate = tensors.take(f"{name}.mlp.gate_proj.weight", ffn, hidden)
    up = tensors.take(f"{name}.mlp.up_proj.weight", ffn, hidden)
    return LayerWeights(
        np.ascontiguousarray(qkv.T),
        np.stack([q_norm] * heads + [k_norm * np.float32(head_dim**0.5)] * kv_heads),
        np.ascontiguousarray(tensors.take(f"{name}.self_attn.o_proj.weight", hidden, heads * head_dim).T),
        np.ascontiguousarray((np.concatenate([-gate, up]) * mlp_norm).T),
        np.ascontiguousarray(-tensors.take(f"{name}.mlp.down_proj.weight", hidden, ffn).T),
    )


def _pair_rows(rows: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """Put dimension i of each head beside dimension i + head_dim / 2, which it rotates with.

    A rotary pair is then one complex number. Dot products do not change, for queries and keys are
    reordered alike.
    """
    halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)
