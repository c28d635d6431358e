"""``ddtree-tune``: one command for everything; each subcommand is a thin call into the package.

A subcommand imports what it needs when it runs: Ray takes seconds, and help or a plan need none.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddtree_tune import __version__
from ddtree_tune.arguments import (
    add_bench_arguments,
    add_output_arguments,
    add_replay_arguments,
    add_run_arguments,
    add_trace_arguments,
    guarded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run the subcommand."""
    arguments = grammar().parse_args(argv)
    return guarded(lambda: int(arguments.act(arguments)))


def grammar() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = argparse.ArgumentParser(prog="ddtree-tune", description=(sys.modules["ddtree_tune"].__doc__ or "").strip())
    parser.add_argument("--version", action="version", version=f"ddtree-tune {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a sweep")
    add_run_arguments(run)
    run.set_defaults(act=_run)

    planned = commands.add_parser("plan", help="show what a sweep would run, without touching a node")
    planned.add_argument("spec", type=Path, help="YAML of the sweep")
    planned.add_argument("--json", action="store_true", help="print it as JSON")
    planned.set_defaults(act=_plan)

    resumed = commands.add_parser("resume", help="go on with an interrupted sweep")
    resumed.add_argument("folder", type=Path, help="results folder of the sweep")
    add_output_arguments(resumed)
    resumed.set_defaults(act=_resume)

    reported = commands.add_parser("report", help="make the report and the winner's files of a results folder anew")
    reported.add_argument("folder", type=Path, help="results folder of a sweep, which may still run")
    reported.add_argument("--json", action="store_true", help="print the answer as JSON")
    reported.set_defaults(act=_report)

    measured = commands.add_parser("bench", help="measure one running server")
    add_bench_arguments(measured)
    measured.set_defaults(act=_bench)

    grade = commands.add_parser("grade", help="grade saved replies")
    grade.add_argument("file", type=Path, help="JSONL with reply and problem on each line")
    grade.add_argument("--out", type=Path, help="JSONL to write, one line per reply")
    grade.add_argument("--json", action="store_true", help="print the summary as JSON")
    grade.add_argument("--allow-weak", action="store_true", help="resource limits alone where no sandbox works")
    grade.set_defaults(act=_grade)

    traced = commands.add_parser("trace", help="draft at every position of a sweep's own replies (built-in engine)")
    add_trace_arguments(traced)
    traced.set_defaults(act=_trace)

    replayed = commands.add_parser("replay", help="acceptance of every budget and topk, from one trace of drafts")
    add_replay_arguments(replayed)
    replayed.set_defaults(act=_replay)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from ddtree_tune.run import start

    return start(arguments.spec, arguments.results, quiet=arguments.quiet, as_json=arguments.json)


def _plan(arguments: argparse.Namespace) -> int:
    from ddtree_tune.core.answer import plan_fields
    from ddtree_tune.core.plan import plan
    from ddtree_tune.core.report import plan_lines
    from ddtree_tune.node.spec_file import read_spec

    spec = read_spec(arguments.spec)
    planned = plan(spec)
    print(json.dumps(plan_fields(spec, planned)) if arguments.json else "\n".join(plan_lines(spec, planned)))
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    from ddtree_tune.run import resume

    return resume(arguments.folder, quiet=arguments.quiet, as_json=arguments.json)


def _report(arguments: argparse.Namespace) -> int:
    from ddtree_tune.node.report_file import report_command

    return report_command(arguments.folder, as_json=arguments.json)


def _bench(arguments: argparse.Namespace) -> int:
    from ddtree_tune.bench import bench

    return bench(arguments)


def _grade(arguments: argparse.Namespace) -> int:
    from ddtree_tune.node.grade_file import grade_command

    return grade_command(arguments.file, arguments.out, as_json=arguments.json, allow_weak=arguments.allow_weak)


def _trace(arguments: argparse.Namespace) -> int:
    from ddtree_tune.builtin.options import fix_threads

    fix_threads(1)
    from ddtree_tune.tracing import trace_command

    return trace_command(
        arguments.spec,
        arguments.out,
        window=arguments.window,
        topk=arguments.topk,
        requests=arguments.requests,
    )


def _replay(arguments: argparse.Namespace) -> int:
    from ddtree_tune.node.replay_file import replay_command

    return replay_command(
        arguments.trace, arguments.budgets, arguments.topks, results=arguments.results, json_path=arguments.json
    )


if __name__ == "__main__":
    sys.exit(main())
