"""Writes and reads the pair in the folders that SGLang and the built-in engine load."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from ddtree_tune.builtin.train.chat import (
    CHAT_TEMPLATE,
    END,
    END_ID,
    END_OF_TEXT,
    MASK_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    TURN,
)
from ddtree_tune.builtin.train.model import Drafter, Shape, Target
from ddtree_tune.builtin.train.vocabulary import save_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer
    from torch import Tensor

EMBEDDING = "model.embed_tokens.weight"


def model_config(shape: Shape) -> dict[str, Any]:
    """Give the part of config.json that both models share."""
    return {
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads,
        "head_dim": shape.head,
        "vocab_size": shape.vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "max_position_embeddings": shape.positions,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
        "use_cache": True,
        "bos_token_id": PAD_ID,
        "eos_token_id": END_ID,
        "pad_token_id": PAD_ID,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _save(folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    stored = {name: one.detach().cpu().bfloat16().contiguous() for name, one in weights.items()}
    save_file(stored, str(folder / "model.safetensors"), metadata={"format": "pt"})


def export_target(folder: Path, target: Target, mask_row: Tensor, tokenizer: Tokenizer) -> None:
    """Write the target with everything a server needs.

    Args:
        folder: made when missing.
        target: the trained model.
        mask_row: (H,), the drafter's mask vector; becomes the embedding of the mask token.
        tokenizer: the pair's.
    """
    weights = dict(target.state_dict())
    weights[EMBEDDING] = weights[EMBEDDING].clone()
    weights[EMBEDDING][MASK_ID] = mask_row
    shape = target.shape
    config = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": shape.layers, **model_config(shape)}
    _save(folder, config, weights)
    _write_json(folder / "generation_config.json", {"do_sample": False, "eos_token_id": END_ID, "pad_token_id": PAD_ID})
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": shape.positions,
            "eos_token": END,
            "pad_token": END_OF_TEXT,
            "additional_special_tokens": [TURN, END, SPECIAL_TOKENS[MASK_ID]],
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def export_drafter(folder: Path, shape: Shape, weights: dict[str, Tensor]) -> None:
    """Write the drafter without its mask vector, which lives in the target's embedding."""
    config = {
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": shape.draft_layers,
        "num_target_layers": shape.layers,
        "block_size": shape.block,
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": list(shape.taps)},
        **model_config(shape),
    }
    _save(folder, config, {name: one for name, one in weights.items() if name != "mask_row"})


def load_target(folder: Path, shape: Shape | None = None) -> Target:
    """Read a target into an fp32 model.

    Args:
        folder: with its config.json and weights.
        shape: what it was trained with; None takes the shipped one and checks it.
    """
    shape = shape or Shape()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    wanted = model_config(shape)
    if differing := {name for name in wanted if config[name] != wanted[name]}:
        raise ValueError(
            f"the target must have the shape {asdict(shape)}, but got other {sorted(differing)} in {folder}; "
            "train it again or pass its shape"
        )
    target = Target(shape)
    weights = load_file(str(folder / "model.safetensors"))
    target.load_state_dict({name: one.float() for name, one in weights.items()})
    target.eval().requires_grad_(requires_grad=False)
    return target


def load_pair(folder: Path, shape: Shape | None = None) -> tuple[Target, Drafter]:
    """Read `target/` and `draft/` into fp32 models; see `load_target`."""
    target, drafter = load_target(folder / "target", shape), Drafter(shape or Shape())
    drafted = load_file(str(folder / "draft" / "model.safetensors"))
    drafted["mask_row"] = target.embed(torch.tensor(MASK_ID))
    drafter.load_state_dict({name: one.float() for name, one in drafted.items()})
    drafter.eval().requires_grad_(requires_grad=False)
    return target, drafter


def save_mark(folder: Path, name: str, shape: Shape, weights: dict[str, Tensor]) -> None:
    """Keep a drafter that is not shipped, with its mask vector beside the folder that servers load."""
    export_drafter(folder / name, shape, weights)
    torch.save(weights["mask_row"].cpu(), folder / f"{name}.mask_row.pt")
