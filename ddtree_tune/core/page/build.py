"""From records to the page: which sections there are, and the numbers that stand on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.conclusion import Answer
from ddtree_tune.core.headline import gain_text, headline
from ddtree_tune.core.launch import winner_script
from ddtree_tune.core.manifest import winner_manifest
from ddtree_tune.core.page.acceptance_section import acceptance_section
from ddtree_tune.core.page.cells_section import cells_section
from ddtree_tune.core.page.coding_section import coding_section
from ddtree_tune.core.page.costs_section import cost_section, energy_section, time_section
from ddtree_tune.core.page.failures_section import failures_section
from ddtree_tune.core.page.front_section import front_sections
from ddtree_tune.core.page.frontier_section import frontier_section
from ddtree_tune.core.page.model import Absent, Code, Figure, Page, Section
from ddtree_tune.core.page.progress import why_partial
from ddtree_tune.core.page.provenance_section import provenance_section
from ddtree_tune.core.page.trials_section import trials_section
from ddtree_tune.core.page.words import hours_text
from ddtree_tune.core.price import setting_costs
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.tables import money

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.record import Fingerprint, TrialRecord
    from ddtree_tune.core.spec import SweepSpec


def build(
    records: Sequence[TrialRecord],
    conclusion: Conclusion,
    spec: SweepSpec,
    *,
    spec_text: str = "",
    driver: Fingerprint | None = None,
) -> Page:
    """The report of a sweep, whole or not.

    Args:
        records: every trial, in the order of asking.
        conclusion: what was found in them.
        spec: the sweep.
        spec_text: its YAML as it was given.
        driver: the machine that drove it; None if that was not kept.
    """
    return Page(
        title=spec.name,
        question=spec.question,
        answer=headline(conclusion),
        partial=why_partial(records, spec),
        figures=_figures(records, conclusion, spec),
        sections=(
            *front_sections(conclusion, spec),
            frontier_section(records, conclusion),
            cells_section(records, conclusion, spec.price),
            acceptance_section(records, conclusion, spec),
            trials_section(conclusion, spec),
            coding_section(records, conclusion, spec),
            failures_section(conclusion),
            time_section(records, spec.price),
            cost_section(conclusion, spec),
            energy_section(records),
            _launch(records, conclusion, spec),
            provenance_section(records, spec, spec_text, driver),
        ),
    )


def _figures(records: Sequence[TrialRecord], conclusion: Conclusion, spec: SweepSpec) -> tuple[Figure, ...]:
    """The numbers on top: gains of the best tree, problems passed, cost of tokens, node time."""
    figures: list[Figure] = []
    tree = conclusion.best_tree
    if tree is not None and conclusion.answer is not Answer.NOTHING:
        name = tree.config.label
        figures += [
            Figure(gain_text(gain), f"{name} x {over}")
            for gain, over in ((tree.vs_none, "no speculation"), (tree.vs_chain, "plain chain"))
            if gain is not None
        ]
    coding = conclusion.best.coding if conclusion.best else None
    if coding is not None and coding.rate.attempted:
        figures.append(Figure(f"{coding.rate.passed}/{coding.rate.attempted}", "problems passed by what to run"))
    if spec.price is not None and conclusion.best is not None:
        costs = {one.config: one.mean for one in setting_costs(conclusion, spec.price, spec.weights())}
        if (mean := costs[conclusion.best.config]) is not None:
            figures.append(Figure(f"{money(mean)} {spec.price.currency}", "per million output tokens of what to run"))
    figures.append(Figure(hours_text(sum(record.seconds for record in records)), f"node time, {len(records)} trials"))
    return tuple(figures)


def _launch(records: Sequence[TrialRecord], conclusion: Conclusion, spec: SweepSpec) -> Section:
    """The command to paste, the same for Kubernetes, and the answer as the command line prints it."""
    script, manifest = (make(conclusion, records, spec) for make in (winner_script, winner_manifest))
    winner = Absent("There is nothing to launch: the sweep recommends no setting.") if script is None else Code(script)
    deployed = () if manifest is None else (Code(manifest, "winner.yaml: the same for Kubernetes"),)
    lines = "\n".join(answer_lines(conclusion, records, spec)).strip()
    how = "winner.sh: the measured command of what to run; HOST, PORT and NAME may be set."
    return Section("launch", "Launch it", how, (winner, *deployed, Code(lines, "The answer as text")))
