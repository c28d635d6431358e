"""Writes the coding problems and the load's task prompts that ship with the package.

`python -m ddtree_tune.builtin.train.problems` rewrites three files in `ddtree_tune/problems/`, the
same bytes on every machine. All of them are held out: no function name or wording was trained on,
though nearly all names are new combinations of trained parts.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune.builtin.train.families import FAMILIES
from ddtree_tune.builtin.train.tasks import Task, draw_calls, draw_task, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).parents[2] / "problems"
FIVE_KINDS = ("merge_sorted", "binary_search", "balanced", "roman", "rle")
"""Kinds with loops and branches."""
STRANGE = ("plain_", "old_", "our_", "pure_", "tiny_")
"""Name parts that no training name has; the tiny target often copies such a name wrongly."""
CALLS = 8
LOAD_PROMPTS = 1200


@dataclass(frozen=True, slots=True)
class DrawnProblem:
    """A problem as it is written, and the task that holds its reference solution."""

    task: Task
    row: dict[str, str]


def problem(task: Task, rng: random.Random, identity: str) -> DrawnProblem:
    """Write a task as a problem with tests, each computed by the reference solution."""
    calls = draw_calls(task.family, rng, CALLS)
    checks = [
        f"    assert candidate({', '.join(map(repr, call))}) == {evaluate(task.code, task.function, call)!r}"
        for call in calls
    ]
    row = {
        "id": identity,
        "kind": task.family,
        "entry_point": task.function,
        "prompt": task.prompt,
        "tests": "\n".join(["def check(candidate):", *checks, ""]),
    }
    return DrawnProblem(task, row)


def strange(task: Task, part: str) -> Task:
    """Put a name part that was never trained before the function's name."""
    old, new = f"{task.function}(", f"{part}{task.function}("
    return replace(
        task,
        function=part + task.function,
        prompt=task.prompt.replace(old, new),
        thought=task.thought.replace(old, new),
        answer=task.answer.replace(f"`{task.function}`", f"`{part}{task.function}`").replace(old, new),
        code=task.code.replace(old, new),
    )


def draw_problems(kinds: Iterable[str], count: int, seed: int, *, last_is_strange: bool) -> list[DrawnProblem]:
    """Draw ``count`` problems of each kind, no function name twice within a kind.

    Args:
        kinds: families by name.
        count: problems of each.
        seed: of all draws.
        last_is_strange: whether the last problem of a kind has a name with a part that was never
            trained, so that a set which the target could pass in full has something to fail on.
    """
    rng = random.Random(seed)
    problems = []
    for kind in kinds:
        names: set[str] = set()
        while len(names) < count:
            task = draw_task(rng, "held_out", kind)
            if last_is_strange and len(names) == count - 1:
                task = strange(task, rng.choice(STRANGE))
            if task.function not in names:
                problems.append(problem(task, rng, f"{kind}/{len(names)}"))
                names.add(task.function)
    return problems


def draw_prompts(count: int, seed: int) -> list[dict[str, str]]:
    """Draw distinct bare prompts, the families in turn."""
    rng = random.Random(seed)
    kinds = sorted(FAMILIES)
    prompts: dict[str, str] = {}
    while len(prompts) < count:
        kind = kinds[len(prompts) % len(kinds)]
        prompts.setdefault(draw_task(rng, "held_out", kind).prompt, kind)
    return [{"prompt": prompt, "family": kind} for prompt, kind in prompts.items()]


def write_lines(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Write rows as JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    """Write the three files."""
    FOLDER.mkdir(exist_ok=True)
    five_kinds = draw_problems(FIVE_KINDS, 5, seed=5, last_is_strange=True)
    families = draw_problems(sorted(FAMILIES), 2, seed=2, last_is_strange=False)
    write_lines(FOLDER / "five_kinds.jsonl", [drawn.row for drawn in five_kinds])
    write_lines(FOLDER / "families.jsonl", [drawn.row for drawn in families])
    write_lines(FOLDER / "tasks.jsonl", draw_prompts(LOAD_PROMPTS, seed=4))


if __name__ == "__main__":
    main()
