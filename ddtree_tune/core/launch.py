"""The winner as a shell script.

What is launched is what was measured, word for word; only the trial's own address and name are made
variables. Which setting serves how many requests in flight is the conclusion's schedule.
"""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING

from ddtree_tune.core.headline import gain_text, headline, schedule_text
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION
from ddtree_tune.core.tables import WIDTH
from ddtree_tune.core.winners import certainty_text, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.engine import EngineConfig, LaunchPlan
    from ddtree_tune.core.record import TrialRecord
    from ddtree_tune.core.spec import SweepSpec
    from ddtree_tune.core.winners import Step, Winner

DEFAULTS = {"HOST": "127.0.0.1", "PORT": "30000", "NAME": "default"}
"""What the variables are where nobody sets them."""


def winner_script(conclusion: Conclusion, records: Sequence[TrialRecord], spec: SweepSpec) -> str | None:
    """A shell script that launches what the sweep recommends; None if it recommends nothing.

    With a number of requests in flight as its argument it launches what is best for that many.
    """
    best = winning_plan(conclusion, records)
    if best is None:
        return None
    steps, others = planned(conclusion, records), beside_best(conclusion, records)
    lines = ["#!/bin/sh", *about(conclusion, spec)]
    if others:
        lines += comment("For a number of requests in flight, as in `sh winner.sh 8`, it launches what is best there:")
        lines += schedule_comment(conclusion)
    lines += ["# HOST, PORT and NAME may be set; the rest is what was measured.", "set -eu"]
    if not others:
        return "\n".join((*lines, *command_lines(best))) + "\n"
    lines += _function("best", best)
    for step, plan in others.items():
        lines += _function(f"from_{step.least}", plan)
    lines += [
        "users=${1:-0}",
        'case "$users" in *[!0-9]*) echo "winner.sh: must get a number, but got $users" >&2; exit 2 ;; esac',
    ]
    for step in sorted(steps, key=lambda one: -one.least):
        called = f"from_{step.least}" if step in others else "best"
        lines.append(f'if [ "$users" -ge {step.least} ]; then {called}; fi')
    return "\n".join((*lines, "best")) + "\n"


def winning_plan(conclusion: Conclusion, records: Sequence[TrialRecord]) -> LaunchPlan | None:
    """The launch of what the sweep recommends; None if it recommends nothing."""
    return None if conclusion.best is None else _latest(conclusion.best.config, records)


def planned(conclusion: Conclusion, records: Sequence[TrialRecord]) -> dict[Step, LaunchPlan]:
    """The schedule by batch size with the launch of each step."""
    plans = ((step, _latest(step.config, records)) for step in schedule(conclusion.bands))
    return {step: plan for step, plan in plans if plan is not None}


def beside_best(conclusion: Conclusion, records: Sequence[TrialRecord]) -> dict[Step, LaunchPlan]:
    """Those steps of the schedule that run something else than the best setting over the whole matrix."""
    best = conclusion.best.config if conclusion.best else None
    return {step: plan for step, plan in planned(conclusion, records).items() if step.config != best}


def command_lines(plan: LaunchPlan) -> list[str]:
    """Shell lines of a launch, an option a line; the trial's own address and name made variables."""
    variables = {name: f'"${{{name}:-{value}}}"' for name, value in DEFAULTS.items()}
    lines: list[str] = []
    for word in command_words(plan, variables, shlex.quote):
        if lines and word.startswith("--"):
            lines.append(f"  {word}")
        else:
            lines = [*lines[:-1], f"{lines[-1]} {word}"] if lines else [f"exec {word}"]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in plan.env]
    return [*exports, *(f"{line} \\" for line in lines[:-1]), lines[-1]]


def command_words(plan: LaunchPlan, variables: Mapping[str, str], quote: Callable[[str], str]) -> list[str]:
    """The command word by word, without further ports of the trial's own: the server picks others by itself.

    Args:
        plan: the launch.
        variables: what stands for the address and the name, by the names of ``DEFAULTS``.
        quote: makes any other word one that is taken as it is.
    """
    pairs = list(zip(("", *plan.argv), (*plan.argv, ""), strict=True))
    further = set(map(str, plan.further_ports))
    dropped = {at for at, (flag, value) in enumerate(pairs) if "port" in flag and value in further}
    words = []
    for at, (before, word) in enumerate(pairs[:-1]):
        if {at, at + 1} & dropped:
            continue
        own = {
            "HOST": word == plan.host and before == "--host",
            "PORT": word == str(plan.port) and "port" in before,
            "NAME": word == plan.served_model_name,
        }
        words.append(next((variables[name] for name, is_own in own.items() if is_own), quote(word)))
    return words


def about(conclusion: Conclusion, spec: SweepSpec) -> list[str]:
    """The answer as comment lines."""
    return comment(f"Sweep {spec.name}: {headline(conclusion)}")


def schedule_comment(conclusion: Conclusion) -> list[str]:
    """What to run for how many requests in flight, as comment lines."""
    bands = {band.concurrency: band for band in conclusion.bands}
    lines = []
    for step in schedule(conclusion.bands):
        said = "; ".join(f"at {users}: {_how(bands[users])}" for users in step.measured)
        lines += comment(f"{step.least} and more: {step.config.label} ({said})", "  ")
    whole = schedule_text(conclusion)
    return [*lines, *(comment(whole, "  ") if whole else [])]


def comment(text: str, indent: str = "") -> list[str]:
    """Text as comment lines of a page's width."""
    width = WIDTH - 2 - len(indent)
    return [f"# {indent}{line}" for line in textwrap.wrap(text, width, subsequent_indent="  " if indent else "")]


def _latest(config: EngineConfig, records: Sequence[TrialRecord]) -> LaunchPlan | None:
    """The launch of the latest complete trial of a configuration."""
    done = [one for one in records if one.config == config and one.status is TrialStatus.COMPLETE]
    plans = [one.plan for one in sorted(done, key=lambda one: one.trial_id) if one.plan is not None]
    return plans[-1] if plans else None


def _how(band: Winner) -> str:
    """How much faster a band's winner is there, and how sure that is."""
    if band.config == NO_SPECULATION:
        return certainty_text(band)
    return f"{gain_text(band.vs_none)} x no speculation, {certainty_text(band)}"


def _function(name: str, plan: LaunchPlan) -> list[str]:
    return [f"{name}() {{", *(f"  {line}" for line in command_lines(plan)), "}"]
