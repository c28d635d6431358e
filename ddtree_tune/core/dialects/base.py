"""What a dialect is, and what all of them share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ddtree_tune.core.engine import Algorithm, Difference, EffectiveConfig, EngineConfig, LaunchPlan, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddtree_tune.core.engine import Scalar


class Dialect(Protocol):
    """How one build spells the knobs."""

    @property
    def name(self) -> str:
        """How the spec names it."""
        ...

    def canonical(self, config: EngineConfig) -> EngineConfig:
        """The configuration that this one really is; equal servers give equal results."""
        ...

    def plan(self, config: EngineConfig, slot: Slot) -> LaunchPlan:
        """The command that launches it."""
        ...

    def read_back(self, server_info: dict[str, object], asked: EngineConfig) -> EffectiveConfig:
        """What the server resolved; raise EngineError if its answer has another form."""
        ...


def canonical_tree(config: EngineConfig, block_size: int | None) -> EngineConfig:
    """Cap topk by the budget, and a tree of topk 1 by its depth.

    A candidate of rank r is taken only after r better siblings, so ranks at or beyond the budget
    never enter a tree. With one candidate per position the tree is a chain, which is no longer than
    the block. Source: Ringel and Romano, DDTree, lemma 1.

    Args:
        config: what is asked.
        block_size: of the drafter, the anchor included; None where it is not known.
    """
    if config.algorithm is not Algorithm.TREE or config.budget is None or config.topk is None:
        return replace(config, budget=None, topk=None)
    budget = config.budget
    if config.topk == 1 and block_size is not None:
        budget = min(budget, block_size - 1)
    return replace(config, budget=budget, topk=min(config.topk, budget))


def flag_args(flags: Iterable[tuple[str, Scalar]]) -> Iterator[str]:
    """Further engine flags as arguments: True is a bare flag, False and None leave it out."""
    for name, value in flags:
        if value is None or value is False:
            continue
        yield f"--{name}"
        if value is not True:
            yield str(value)


_TRANSLATED = frozenset({"tool_call_parser", "enable_flashinfer_allreduce_fusion"})
"""Flags that SGLang obeys under another value (``qwen25`` is ``qwen``) or another name, in 0.5.17 and 0.5.23 alike."""
_SAME = {
    "tensor_parallel_size": "tp_size",
    "tp": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "ep": "ep_size",
    "model": "model_path",
    "speculative_draft_model": "speculative_draft_model_path",
}
"""Further spellings of flags that ``/server_info`` lists under one name."""
_UNSET = "unquant"
"""Its word for no quantisation, which it resolves to null."""


def overridden(argv: Sequence[str], server_info: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Flags that the server's own information contradicts.

    SGLang overrides some flags with a warning at most (``--speculative-num-steps`` under DFLASH,
    ``--page-size`` under some attention kernels); ``/server_info`` holds what it resolved under the
    flag's own name. A flag that it does not list, and one that asks for ``auto``, are not compared.

    Args:
        argv: the command that was launched; of a flag given twice, in whatever spelling, the last one counts.
        server_info: the answer.

    Returns:
        One entry per contradicted flag, in the order of the command line.
    """
    asked: dict[str, str | bool] = {}
    for at, word in enumerate(argv):
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            following = argv[at + 1] if at + 1 < len(argv) else "--"
            several = at + 2 < len(argv) and not argv[at + 2].startswith("--")
            bare = following.startswith("--")
            if given or bare or not several:
                listed = name.replace("-", "_")
                asked[_SAME.get(listed, listed)] = value if given else bare or following
    compared = {name: value for name, value in asked.items() if name in server_info and name not in _TRANSLATED}
    found = ((name, value, server_info[name]) for name, value in compared.items())
    return tuple(Difference(name, value, seen) for name, value, seen in found if not _agrees(value, seen))


def _agrees(asked: str | bool, resolved: Any) -> bool:
    if isinstance(resolved, dict | list):
        return True
    if isinstance(asked, bool) or asked == "auto":
        return asked == "auto" or resolved is True
    if asked == _UNSET:
        return resolved in {None, _UNSET}
    if isinstance(resolved, int | float) and not isinstance(resolved, bool):
        try:
            return float(asked) == float(resolved)
        except ValueError:
            return False
    return str(resolved).lower() == asked.lower()
