"""`python -m ddtree_tune.builtin.train.golden`: reference results of the shipped pair, in torch fp32.

Writes `tests/builtin/golden/logits.npz`, which holds other implementations to this one. For each of
three held-out prompts `N` it holds: `N_ids`; `N_logits`, the target's scores at the last 8 positions;
`N_taps`, the tapped hidden states of the last 2; `N_anchor`, the greedy next token; and
`N_draft_none` and `N_draft_64`, the drafter's scores of the 15 tokens after the anchor without and
with a window of 64.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own spelling
from tokenizers import Tokenizer

from ddtree_tune.builtin.train.corpus import load_corpus
from ddtree_tune.builtin.train.data import Sampler, held_out_prompts
from ddtree_tune.builtin.train.export import load_pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ddtree_tune.builtin.train.model import Drafter, Target

PAIR = Path(__file__).parents[1] / "pair"
LOGIT_POSITIONS, TAP_POSITIONS, WINDOW = 8, 2, 64
CONTEXT_TOKENS = (0, 240, 640)


def references(target: Target, drafter: Drafter, prompt: list[int]) -> dict[str, NDArray[np.generic]]:
    """Compute everything that is kept of one prompt."""
    with torch.no_grad():
        ids = torch.tensor([prompt])
        hidden = target(ids)
        scores = target.logits(hidden.last)[0]
        anchor = scores[-1].argmax()
        embedded = target.embed(anchor)[None, None]
        at = torch.tensor([[len(prompt)]])
        drafted = {
            name: F.linear(drafter(hidden.taps, embedded, at, target.shape.block, window), target.lm_head.weight)
            for name, window in (("none", None), (str(WINDOW), torch.tensor([[WINDOW]])))
        }
    return {
        "ids": np.array(prompt, np.int64),
        "logits": scores[-LOGIT_POSITIONS:].numpy(),
        "taps": hidden.taps[0, -TAP_POSITIONS:].numpy(),
        "anchor": anchor.numpy(),
        **{f"draft_{name}": one[0, 0, 1:].numpy() for name, one in drafted.items()},
    }


def main(argv: list[str] | None = None) -> None:
    """Write the references of a pair."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_tune.builtin.train.golden", description=__doc__)
    parser.add_argument("--pair", type=Path, default=PAIR, help="folder with target/ and draft/")
    parser.add_argument("--out", type=Path, default=Path("tests/builtin/golden/logits.npz"))
    given = parser.parse_args(argv)
    target, drafter = load_pair(given.pair)
    tokenizer = Tokenizer.from_file(str(given.pair / "target" / "tokenizer.json"))
    sampler = Sampler(tokenizer, load_corpus("held_out"), "held_out", 1)
    kept: dict[str, NDArray[np.generic]] = {}
    for at, context_tokens in enumerate(CONTEXT_TOKENS):
        ((_, prompt),) = held_out_prompts(sampler, 1, context_tokens)
        kept |= {f"{at}_{name}": one for name, one in references(target, drafter, prompt).items()}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(given.out, **kept)  # type: ignore[arg-type]  # the stub mistakes names for options


if __name__ == "__main__":
    main()
