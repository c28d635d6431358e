"""What worker processes do for the evaluation: run replies against their tests, replay drafts.

Torch-free, since each process of the pool imports it. The programs are the tiny target's own and
run without imports, files or names beyond a list; this is no sandbox for other models.
"""

from __future__ import annotations

import builtins
import copy
import random
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddtree_tune.builtin.train.tasks import Task, draw_calls, evaluate
from ddtree_tune.core.tree import build_tree

if TYPE_CHECKING:
    from types import FrameType

    import numpy as np
    from numpy.typing import NDArray

BUDGETS = (4, 8, 12, 16, 24, 32, 48, 64)
TOPKS = (1, 2, 4, 8)
ALLOWED = [
    *("abs", "all", "any", "bool", "chr", "dict", "divmod", "enumerate", "filter", "float", "int", "isinstance"),
    *("iter", "len", "list", "map", "max", "min", "next", "ord", "pow", "range", "repr", "reversed", "round"),
    *("set", "sorted", "str", "sum", "tuple", "zip"),
]
LONGEST_RUN_S = 1.0


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def passes(task: Task, reply: str) -> bool:
    """Whether the last program after the thinking gives the reference's results on twelve calls."""
    programs = re.findall(r"```python\n(.*?)```", reply.rsplit("</think>", maxsplit=1)[-1], re.DOTALL)
    if not programs:
        return False
    scope: dict[str, Any] = {"__builtins__": {name: getattr(builtins, name) for name in ALLOWED}}
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_RUN_S)
    try:
        exec(programs[-1], scope)
        return all(
            scope[task.function](*copy.deepcopy(call)) == evaluate(task.code, task.function, call)
            for call in draw_calls(task.family, random.Random(0), 12)
        )
    except Exception:  # noqa: BLE001 -- whatever a program raises, it failed
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts at every position of one greedy reply."""

    reply: list[int]
    log_probs: NDArray[np.float32]
    """(n, D, K): at reply token i < n, per position the best candidates, descending."""
    tokens: NDArray[np.int64]
    """(n, D, K), the candidates."""


Steps = dict[tuple[int, int], tuple[int, int]]
"""Per (topk, budget): tokens committed and verify steps taken."""


def replay(drafts: Drafts) -> Steps:
    """Simulate greedy decoding at every topk and budget.

    The tree at budget B is the first B pops of a larger one, and greedy text does not depend on the
    tree: the pop numbers of the nodes on the true path are all that a simulation needs.
    """
    taken: Steps = {}
    for topk in TOPKS:
        paths = [_path(drafts, at, topk) for at in range(len(drafts.log_probs))]
        for budget in BUDGETS:
            at = steps = 0
            while at < len(drafts.reply) - 1:
                at += 1 + sum(pop <= budget for pop in paths[at])
                steps += 1
            taken[topk, budget] = (len(drafts.reply) - 1, steps)
    return taken


def _path(drafts: Drafts, at: int, topk: int) -> list[int]:
    """Pop numbers, from 1, of the tree's nodes along the reply after token ``at``."""
    tree = build_tree(drafts.log_probs[at, :, :topk].tolist(), BUDGETS[-1])
    candidates = drafts.tokens[at].tolist()
    nodes = {
        (parent, candidates[depth - 1][rank]): node
        for node, (parent, depth, rank) in enumerate(
            zip(tree.parents_N, tree.depths_N, tree.ranks_N, strict=True), start=1
        )
    }
    path: list[int] = []
    for token in drafts.reply[at + 1 :]:
        node = nodes.get((path[-1] if path else 0, token))
        if node is None:
            break
        path.append(node)
    return path
