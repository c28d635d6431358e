"""The report of a results folder: both files, the answer, any moment of a sweep, and no node."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import vl_convert

from ddtree_tune.cli import main
from ddtree_tune.core.headline import headline
from ddtree_tune.core.page.html import DRAW
from ddtree_tune.node.report_file import WINNER
from ddtree_tune.node.results import load
from ddtree_tune.node.store import Store
from tests.builders import FINGERPRINT, SPEC
from tests.core.page.reading import charts, read, sections
from tests.core.test_conclusion import finals, search

GOLDEN = Path(__file__).parents[1] / "golden/results"
ELSEWHERE = ["ray", "optuna", "httpx", "rich", "uvicorn", "torch"]


def folder(root, records, text=SPEC):
    store = Store(str(root))
    store.write_spec(text)
    store.write_fingerprint(FINGERPRINT)
    for one in records:
        store.write(one)
    return root


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """The kept sweep with its report made anew, by the command in a process of its own."""
    root = tmp_path_factory.mktemp("kept") / "laptop"
    shutil.copytree(GOLDEN, root)
    for name in WINNER:
        (root / name).unlink()
    blocked = f"import sys; sys.modules.update(dict.fromkeys({ELSEWHERE!r})); from ddtree_tune.cli import main; "
    code = f"{blocked}sys.exit(main(['report', {str(root)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root, done.stdout


def test_the_command_makes_the_files_and_prints_the_answer_without_ray_or_a_node(golden):
    root, said = golden
    results = load(root)
    assert " ".join(said.split()).startswith(headline(results.conclusion()))
    assert said.endswith(f"\nReport: {root}/report.html\n")
    assert all((root / name).read_text() == (GOLDEN / name).read_text() for name in WINNER)
    assert {one.name for one in root.iterdir()} == {one.name for one in GOLDEN.iterdir()} | {"report.html"}


def test_the_page_holds_all_that_draws_it_and_fits_into_a_mail(golden):
    text = (golden[0] / "report.html").read_text()
    assert 500_000 < len(text) < 1_500_000
    root = read(text)
    script = root.find("script")[1].text
    assert "vegaEmbed" in DRAW
    assert "This chart could not be drawn: " in script
    assert "<!--" not in script
    assert len(sections(root)) == 11


def test_every_chart_is_drawn_with_a_mark_for_each_row(golden):
    drawn = charts(read((golden[0] / "report.html").read_text()))
    assert len(drawn) == 8
    for spec in drawn.values():
        svg = vl_convert.vegalite_to_svg({**spec, "width": 600})
        assert svg.count("<path") > len(spec["data"]["values"])
        assert "NaN" not in svg


def test_a_running_sweep_has_a_report_that_says_so(tmp_path, capsys):
    root = folder(tmp_path / "small", search()[:2])
    assert main(["report", str(root)]) == 0
    said = capsys.readouterr().out
    assert "No answer: no setting completed every cell" in said
    assert "Partial: 2 of 8 settings and 0 of 8 repeated measurements are in." in said
    assert 'role="status">Partial: 2 of 8' in (root / "report.html").read_text()
    assert not [name for name in WINNER if (root / name).exists()]
    folder(root, [*search(), *finals()])
    assert main(["report", str(root)]) == 0
    assert "Run budget 16, topk 4, window 64" in (root / "winner.sh").read_text().replace("\n# ", " ")


def test_programs_get_the_answer_of_a_running_sweep_as_one_object(tmp_path, capsys):
    root = folder(tmp_path / "small", search())
    assert main(["report", str(root), "--json"]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    got = json.loads(said)
    assert got["event"] == "answer"
    assert got["headline"] == headline(load(root).conclusion())
    assert got["partial"].startswith("Partial: 4 of 8 settings")
    assert (got["results"], got["report"]) == (str(root), f"{root}/report.html")
    assert (root / "report.html").is_file()


def test_a_folder_without_trials_and_one_with_an_odd_fingerprint_have_a_report(tmp_path):
    root = folder(tmp_path / "small", [])
    (root / "fingerprint.json").write_text('{"hostname": 3, "gpus": null}')
    assert main(["report", str(root)]) == 0
    found = sections(read((root / "report.html").read_text()))
    assert "No trial has ended yet." in found["trials"].text
    assert "Driven from" not in found["provenance"].text


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "must be the results folder of a sweep, but got no sweep.yaml in it"),
        ("name: small\n", "sweep.yaml: space"),
    ],
)
def test_a_folder_that_is_no_sweep_is_one_sentence_and_exit_code_2(tmp_path, capsys, spec, words):
    if spec is not None:
        (tmp_path / "sweep.yaml").write_text(spec)
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not said.out
    assert not (tmp_path / "report.html").exists()
