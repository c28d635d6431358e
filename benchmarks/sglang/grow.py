"""Makes the shipped pair as large as a real one, without changing what it says.

The trained model lives on in a corner of a larger one: the first coordinates of the residual stream, the
first heads, units and layers. Nothing else ever writes into the stream, so its other coordinates stay
exactly zero; what is read is therefore the same, and a pass costs what one of that size costs. A norm over
more coordinates sees a smaller mean square: its weight and its epsilon make up for it, exactly, as the
factor is a power of two. (The norms of queries and keys are over head_dim, which stays; they see the smaller
epsilon, some 1e-6 of their mean square, which is far below what bfloat16 holds.)

What need not be zero is noise, for a GPU draws less power, and so runs faster, on zeros. What must be is the
matrices that write into the stream, o_proj and down_proj, outside the corner: a third of the model.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors

from benchmarks.sglang.shards import Fill, Tensor, bfloat16, float32, write_model
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.core.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the pair grows to; a target of 6.8e9 parameters."""

    hidden: int = 3072
    """The shipped 192 times a power of 4."""
    layers: int = 40
    """Of the target."""
    heads: int = 32
    """Of target and drafter, as the next two."""
    kv_heads: int = 16
    intermediate: int = 16384
    draft_layers: int = 5


def grow(out: Path, sizes: Sizes, shipped: Path = PAIR) -> None:
    """Write a grown pair.

    Args:
        out: a folder that is not there yet; gets `target` and `draft`.
        sizes: what it grows to.
        shipped: the pair that it says the same as.

    Raises:
        SpecError: the pair cannot grow to these sizes, or the folder is there.
    """
    target, draft = _Shipped.read(shipped / "target"), _Shipped.read(shipped / "draft")
    _check(target, "layers", sizes.layers, sizes)
    _check(draft, "draft-layers", sizes.draft_layers, sizes)
    if out.exists():
        raise SpecError(f"{out} must not be there yet, but it is; give another folder or remove it")
    for part, model, layers in (("target", target, sizes.layers), ("draft", draft, sizes.draft_layers)):
        folder = out / part
        folder.mkdir(parents=True)
        for file in sorted((shipped / part).iterdir()):
            if file.name not in {"config.json", "model.safetensors"}:
                shutil.copy(file, folder / file.name)
        config = json.dumps(_config(model, layers, sizes), indent=1)
        (folder / "config.json").write_text(config + "\n", encoding="utf-8")
        write_model(folder, _tensors(model, layers, sizes))


@dataclass(frozen=True, slots=True)
class _Shipped:
    """A model as it was trained."""

    config: dict[str, Any]
    tensors: dict[str, NDArray[np.uint16]]
    """Values in bfloat16."""

    @classmethod
    def read(cls, folder: Path) -> _Shipped:
        raw = safetensors.deserialize((folder / "model.safetensors").read_bytes())  # type: ignore[no-untyped-call]
        tensors = {name: np.frombuffer(one["data"], "<u2").reshape(one["shape"]) for name, one in raw}
        return cls(json.loads((folder / "config.json").read_text(encoding="utf-8")), tensors)

    @property
    def hidden(self) -> int:
        """Coordinates of the residual stream."""
        return int(self.config["hidden_size"])


def _check(model: _Shipped, name_of_layers: str, layers: int, sizes: Sizes) -> None:
    config = model.config
    ratio = sizes.hidden / model.hidden
    if ratio < 1 or math.log(ratio, 4) % 1:
        raise SpecError(
            f"hidden must be {model.hidden} times a power of 4, so that a norm's weight changes by a power of 2 and "
            f"stays exact in bfloat16, but got {sizes.hidden}; give {4 * model.hidden} or {16 * model.hidden}"
        )
    for name, grown, least in (
        (name_of_layers, layers, config["num_hidden_layers"]),
        ("heads", sizes.heads, config["num_attention_heads"]),
        ("kv-heads", sizes.kv_heads, config["num_key_value_heads"]),
        ("intermediate", sizes.intermediate, config["intermediate_size"]),
    ):
        if grown < least:
            raise SpecError(f"{name} must be at least the {least} that were trained, but got {grown}")
    shared = config["num_attention_heads"] // config["num_key_value_heads"]
    if sizes.heads != shared * sizes.kv_heads:
        raise SpecError(
            f"heads must be {shared} times kv-heads, so that each head keeps its keys, but got {sizes.heads} and "
            f"{sizes.kv_heads}"
        )


def _config(model: _Shipped, layers: int, sizes: Sizes) -> dict[str, Any]:
    grown = model.config | {
        "num_hidden_layers": layers,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "rms_norm_eps": model.config["rms_norm_eps"] * model.hidden / sizes.hidden,
    }
    return grown | ({"num_target_layers": sizes.layers} if "num_target_layers" in grown else {})


def _tensors(model: _Shipped, layers: int, sizes: Sizes) -> Iterator[Tensor]:
    """All tensors of a target or a drafter, the trained layers first."""
    known, hidden, vocabulary = model.tensors, sizes.hidden, model.config["vocab_size"]
    head_dim = model.config["head_dim"]
    queries, keys, units = sizes.heads * head_dim, sizes.kv_heads * head_dim, sizes.intermediate
    of_layer = (
        ("input_layernorm", (hidden,), Fill.ONE),
        ("self_attn.q_proj", (queries, hidden), Fill.NOISE),
        ("self_attn.k_proj", (keys, hidden), Fill.NOISE),
        ("self_attn.v_proj", (keys, hidden), Fill.NOISE),
        ("self_attn.q_norm", (head_dim,), Fill.ONE),
        ("self_attn.k_norm", (head_dim,), Fill.ONE),
        ("self_attn.o_proj", (hidden, queries), Fill.ZERO),
        ("post_attention_layernorm", (hidden,), Fill.ONE),
        ("mlp.gate_proj", (units, hidden), Fill.NOISE),
        ("mlp.up_proj", (units, hidden), Fill.NOISE),
        ("mlp.down_proj", (hidden, units), Fill.ZERO),
    )
    of_model = (
        ("model.embed_tokens.weight", (vocabulary, hidden), Fill.ZERO),
        ("model.norm.weight", (hidden,), Fill.ONE),
        ("lm_head.weight", (vocabulary, hidden), Fill.NOISE),
        ("hidden_norm.weight", (hidden,), Fill.ONE),
        ("norm.weight", (hidden,), Fill.ONE),
    )

    def tensor(name: str, shape: tuple[int, ...], fill: Fill) -> Tensor:
        corner = known.get(name)
        if corner is not None and corner.shape == (model.hidden,):
            corner = bfloat16(float32(corner) / np.float32(math.sqrt(hidden / model.hidden)))
        return Tensor(name, shape, fill, corner)

    for name, shape, fill in of_model:
        if name in known:
            yield tensor(name, shape, fill)
    if "fc.weight" in known:
        yield _fc(known["fc.weight"], model.hidden, hidden)
    prefix = "model.layers" if "model.norm.weight" in known else "layers"
    for index in range(layers):
        for part, shape, fill in of_layer:
            yield tensor(f"{prefix}.{index}.{part}.weight", shape, fill)


def _fc(trained: NDArray[np.uint16], live: int, hidden: int) -> Tensor:
    """What turns the tapped layers' outputs into the drafter's context: a block of columns for each of them.

    Args:
        trained: (live, taps live) uint16.
        live: coordinates before.
        hidden: coordinates after.
    """
    taps = np.split(trained, trained.shape[1] // live, axis=1)
    blocks = [Tensor("", (live, hidden), Fill.NOISE, tap).array(at * live * hidden) for at, tap in enumerate(taps)]
    return Tensor("fc.weight", (hidden, len(taps) * hidden), Fill.ZERO, np.hstack(blocks))
