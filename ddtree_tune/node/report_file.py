"""The report of a results folder: ``report.html`` and the winner's files, made from what lies there.

It reads Parquet and the spec and touches no node, so it may run beside a sweep, at any moment of it.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.answer import answer_fields, hope_fields
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.errors import SpecError, StoreError
from ddtree_tune.core.launch import winner_script
from ddtree_tune.core.manifest import winner_manifest
from ddtree_tune.core.page.build import build
from ddtree_tune.core.page.html import DRAW, html
from ddtree_tune.core.record import Fingerprint
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddtree_tune.core.beliefs import Hope
    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.record import TrialRecord

REPORT = "report.html"
WINNER = {"winner.sh": winner_script, "winner.yaml": winner_manifest}
"""What launches the winner, by the file that it is written to."""


def report_command(folder: Path, *, as_json: bool = False) -> int:
    """Make the files of a folder anew, and print the answer.

    Args:
        folder: the results of a sweep, which may still run.
        as_json: as one JSON object.

    Returns:
        The exit code 0.

    Raises:
        SpecError: the folder holds no sweep.
    """
    if not (folder / "sweep.yaml").is_file():
        raise SpecError(f"{folder} must be the results folder of a sweep, but got no sweep.yaml in it")
    store = Store(str(folder.resolve()))
    spec = SweepSpec.parse(store.read_spec(), str(folder / "sweep.yaml"))
    records = store.read_records()
    conclusion = conclude(records, spec)
    partial = write_report(store, records, conclusion, spec)
    if as_json:
        print(answer_line(store, records, conclusion, spec, partial=partial))
        return 0
    print("\n".join(answer_lines(conclusion, records, spec, root=store.root)))
    if partial is not None:
        print(f"\n{partial}")
    print(f"\nReport: {store.root}/{REPORT}")
    return 0


def answer_line(
    store: Store,
    records: Sequence[TrialRecord],
    conclusion: Conclusion,
    spec: SweepSpec,
    *,
    partial: str | None,
    hope: Hope | None = None,
) -> str:
    """The answer as one line of JSON, the last of those that a sweep prints; with what the search would try next."""
    fields = answer_fields(conclusion, records, spec, root=store.root, partial=partial)
    fields["next"] = hope_fields(hope) if hope else None
    return json.dumps({"event": "answer", **fields, "report": f"{store.root}/{REPORT}"}, ensure_ascii=False)


def write_report(store: Store, records: Sequence[TrialRecord], conclusion: Conclusion, spec: SweepSpec) -> str | None:
    """Write the page, and what launches the winner if there is one.

    Args:
        store: the results folder.
        records: what lies in it.
        conclusion: what was found in them.
        spec: the sweep.

    Returns:
        Why there may be more to come; None once the sweep is over.

    Raises:
        StoreError: they cannot be written.
    """
    page = build(records, conclusion, spec, spec_text=store.read_spec(), driver=_driver(store))
    store.write_text(REPORT, html(page, script()))
    for name, make in WINNER.items():
        if (text := make(conclusion, records, spec)) is not None:
            store.write_text(name, text)
    return page.partial


@functools.cache
def script() -> str:
    """All that the page runs, as one script: Vega, Vega-Lite, Vega-Embed, and what draws the charts."""
    import vl_convert  # noqa: PLC0415 - 80 MB that the rest of a sweep does not need

    return str(vl_convert.javascript_bundle(DRAW))


def _driver(store: Store) -> Fingerprint | None:
    """The machine that drove the sweep; None where the folder does not say, or says it otherwise."""
    try:
        found: dict[str, Any] = json.loads(store.read_text("fingerprint.json"))
        return Fingerprint(**found | {"gpus": tuple(found["gpus"]), "packages": tuple(map(tuple, found["packages"]))})
    except (StoreError, ValueError, TypeError, KeyError):
        return None
