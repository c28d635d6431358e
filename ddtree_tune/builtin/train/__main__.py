"""`python -m ddtree_tune.builtin.train --out DIR`: from the standard library to a tiny pair.

Writes `pair/` (target and the chosen drafter), `marks/` (the drafter at other times), `eval.json`
and `log.txt`. With the defaults it wants a GPU and about nine minutes; `--smoke` runs every step in
under a minute on a CPU and learns nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ddtree_tune.builtin.train.pipeline import FULL, SMOKE, run


def main(argv: list[str] | None = None) -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_tune.builtin.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for everything that is written")
    parser.add_argument("--target", type=Path, help="folder of a trained target: train only its drafter")
    parser.add_argument("--seconds-target", type=float, help="how long the target trains")
    parser.add_argument("--seconds-draft", type=float, help="how long the drafter trains")
    parser.add_argument("--seconds-total", type=float, help="evaluation ends early when this is reached")
    parser.add_argument("--seed", type=int, default=0, help="of all draws")
    parser.add_argument("--workers", type=int, help="processes that draw examples")
    parser.add_argument("--smoke", action="store_true", help="every step, tiny")
    given = parser.parse_args(argv)
    plan = SMOKE if given.smoke else FULL
    run(
        given.out,
        plan.replaced(
            seconds_target=given.seconds_target,
            seconds_draft=given.seconds_draft,
            seconds_total=given.seconds_total,
            workers=given.workers,
        ),
        given.seed,
        given.target,
    )


if __name__ == "__main__":
    main()
