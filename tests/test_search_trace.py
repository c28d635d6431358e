"""Traces in a sweep: read before anything starts, replayed over the space, and used from the records alone."""

import gzip
from pathlib import Path

import pytest

from ddtree_tune.core.foresight import Replayed
from ddtree_tune.core.record import Origin
from ddtree_tune.core.space import Space
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.replay_file import load_trace
from ddtree_tune.node.search import Study
from ddtree_tune.run import main
from tests.builders import DIALECT, SPEC, record, surface

KEPT = Path(__file__).parent / "golden/replay/drafts.jsonl.gz"


def text(trace, sampler="surrogate"):
    return SPEC.replace("search: {", f"search: {{sampler: {sampler}, trace: {trace}, ")


@pytest.mark.parametrize(
    ("trace", "sampler", "sentence"),
    [
        ("/nowhere.jsonl", "surrogate", "/nowhere.jsonl"),
        (f"[{KEPT}, {KEPT}]", "surrogate", "search.trace must be of different windows, but got"),
        (str(KEPT), "tpe", "trace must come with sampler surrogate, which alone can use it, but got tpe"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_before_anything_starts(tmp_path, capsys, trace, sampler, sentence):
    (tmp_path / "s.yaml").write_text(text(trace, sampler))
    assert main([str(tmp_path / "s.yaml"), "--results", str(tmp_path / "results")]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
    assert not (tmp_path / "results").exists()


def test_a_trace_alone_is_a_list_of_one():
    assert SweepSpec.parse(text(KEPT), "s").search.trace == (str(KEPT),)
    assert SweepSpec.parse(SPEC, "s").search.trace == ()


def test_a_resumed_sweep_with_a_trace_proposes_as_if_it_had_never_stopped(tmp_path):
    short = tmp_path / "short.jsonl"
    lines = gzip.decompress(KEPT.read_bytes()).decode().splitlines()
    short.write_text("\n".join(lines[:3]) + "\n")
    sweep = SweepSpec.parse(text(short), "s")
    replayed = Replayed.of([load_trace(short)], Space.of(sweep.space, DIALECT).points.values())
    study, asked, told = Study(sweep, DIALECT, replayed=replayed), [], []
    while (proposal := study.ask()) is not None:
        asked.append(proposal)
        told.append(record(sweep, proposal, lambda _, users, one=proposal.config: users * surface(one)))
        study.tell(told[-1])
    assert len(asked) == 16
    finals = [one.config for one in asked if one.origin is Origin.FINAL]
    assert list(study.ranking()[:2]) == finals[:2]  # step times of the finals do not change who is in them
    for count in range(4, 16, 3):
        assert Study(sweep, DIALECT, told[:count], replayed).ask() == asked[count]
