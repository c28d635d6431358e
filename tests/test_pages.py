"""Whatever stands on a page can be used: links, commands, YAML, Python, JSON, and tables of names."""

import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import ddtree_tune
from ddtree_tune.cli import grammar
from ddtree_tune.core.conclusion import Answer
from ddtree_tune.core.dialects import select
from ddtree_tune.core.engine import Algorithm, EngineConfig, Slot
from ddtree_tune.core.flags import CellFlag
from ddtree_tune.core.report import answer_lines
from ddtree_tune.core.spec import SweepSpec
from tests.node.test_progress import told_as_json

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/**/*.md")])


def anchors(page):
    """What a link to a heading of a page may name, as GitHub spells it."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if re.match(r"https?:", target):
            assert re.fullmatch(r"https://[\w.-]+\.\w+(/[\w./#~%-]*)?", target), f"{page}: {target}"
            continue
        path, _, anchor = target.partition("#")
        assert (page.parent / path).exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(page.parent / path if path else page), f"{page}: {target}"
    assert len(text) > 100


def fences(page, *languages):
    """Blocks of code of a page in some languages; ``""`` is none named."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def blocks(*languages):
    found = [(page, text) for page in PAGES for text in fences(page, *languages)]
    return pytest.mark.parametrize(
        ("page", "text"), found, ids=[f"{page.stem}-{n}" for n, (page, _) in enumerate(found)]
    )


@blocks("yaml")
def test_yaml_of_a_page_is_a_spec_or_a_part_of_one(page, text):
    read = yaml.safe_load(text)
    whole = {"name": "part", "space": {"budget": [4], "topk": [1], "window": ["none"]}} | read
    whole.setdefault("load", {"contexts": [60], "concurrency": [1]})
    assert set(read) <= set(SweepSpec.model_fields)
    SweepSpec.parse(yaml.safe_dump(whole), str(page))


@blocks("python")
def test_python_of_a_page_compiles(page, text):
    assert compile(text, str(page), "exec")


@blocks("json")
def test_json_of_a_page_is_a_value_a_line(page, text):
    assert [json.loads(line) for line in text.splitlines()]


def commands(page):
    """Command lines of a page, and whether they are whole: in the text ours may be named by their first words."""
    for text in fences(page, "", "sh", "bash"):
        lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
        for line in lines if PROGRAM.match(lines[0]) else ():
            yield from ((part, True) for part in line.split(" && "))
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from ((line, False) for line in re.findall(r"`((?:ddtree-tune|python -m ddtree_tune)[^`]*)`", prose))


PROGRAM = re.compile(r"(\w+=\S+ )*(ddtree-tune|pip|python|ray|kubectl|curl) ")
PLACES = re.compile(r"^(search_spaces|docs|tests|benchmarks)/|^cluster\w*\.yaml$")
"""Words of a command that name what the repository holds."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_understood(page):
    for command, whole in commands(page):
        words = shlex.split(command, comments=True)
        while words and re.fullmatch(r"\w+=\S*", words[0]):
            words.pop(0)
        understand(words, command, whole=whole and "…" not in command)
        for word in words:
            assert not PLACES.match(word) or (ROOT / word).exists(), f"{page}: {command}"


def understand(words, command, *, whole):
    """Fail if a program of ours, or of Ray, would not take these arguments."""
    if words[:2] == ["python", "-m"]:
        module, arguments = words[2], words[3:]
        assert module.partition(".")[0] in ELSEWHERE or importlib.util.find_spec(module), command
        if module == "ddtree_tune.run":
            ours(["run", *arguments], command, whole=whole)
        if module == "ddtree_tune.cli":
            ours(arguments, command, whole=whole)
    elif words[0] == "ddtree-tune":
        ours(words[1:], command, whole=whole)
    elif words[0] == "ray":
        arguments, _, entrypoint = (list(part) for part in partition(words[1:], "--"))
        rays(arguments, command, entrypoint)
        if entrypoint:
            understand(entrypoint, command, whole=whole)
    elif Path(words[0]).name == "pip":
        extras = re.findall(r"\[(.*?)\]", command)
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert all(extra in known for found in extras for extra in found.split(",")), command
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), command
    else:
        assert words[0] in {"kubectl", "curl"}, command


ELSEWHERE = {"sglang", "venv"}
"""What is run where this package is not installed."""


def partition(words, mark):
    at = words.index(mark) if mark in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


def ours(arguments, command, *, whole):
    """Our own command line; of one that is not whole its first word and its flags."""
    if whole:
        try:
            grammar().parse_args(arguments)
        except SystemExit as end:
            if end.code:
                pytest.fail(command)
        return
    (subcommands,) = grammar()._subparsers._group_actions
    assert not arguments or arguments[0] in subcommands.choices or arguments[0].startswith("-"), command
    parser = subcommands.choices.get(arguments[0] if arguments else "", grammar())
    assert {word for word in arguments if word.startswith("--")} <= set(parser._option_string_actions), command


def rays(arguments, command, entrypoint):
    """Ray's command line, whose groups hold commands that hold options."""
    from ray.scripts.scripts import cli

    found, context = cli, None
    while hasattr(found, "commands"):
        context = found.make_context("ray", arguments[:1], parent=context, resilient_parsing=True)
        found, arguments = found.get_command(context, arguments[0]), arguments[1:]
        assert found is not None, command
    options = {flag for parameter in found.params for flag in parameter.opts}
    given = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    assert given <= options, f"{command}: {given - options}"
    assert bool(entrypoint) == (found.name == "submit"), command


def test_the_answer_in_the_readme_is_that_of_the_kept_sweep():
    results = ddtree_tune.load(ROOT / "tests/golden/results")
    lines = answer_lines(results.conclusion(), results.records, results.spec)
    (shown,) = (text for text in fences(ROOT / "README.md", "") if "Trials: budget/topk/window" in text)
    assert "\n".join(lines).strip().startswith(shown.strip())


def test_the_methodology_names_every_flag_and_every_answer():
    text = (ROOT / "docs/methodology.md").read_text()
    assert [name for name in (*CellFlag, *Answer) if f"`{name.value}`" not in text] == []


def test_the_page_of_events_lists_those_that_a_sweep_tells_and_what_they_hold():
    page = (ROOT / "docs/running.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", page, re.MULTILINE)
    listed = {name: set(re.findall(r"`(\w+)`", holds)) for name, holds in rows}
    everywhere = {"event", "at_utc", "done", "of", "ends_utc"}
    told = {one["event"]: set(one) - everywhere for one in told_as_json()}
    assert {name: holds - everywhere for name, holds in listed.items() if name not in {"answer", "event"}} == told


def test_the_dialect_of_the_page_launches_what_the_page_says():
    page = ROOT / "docs/dialects.md"
    (text,), (launch, *_) = fences(page, "yaml"), fences(page, "")
    spec = SweepSpec.parse(text, str(page))
    slot = Slot("127.0.0.1", 30000, "n", spec.engine.model, spec.engine.draft_model, 8)
    plan = select(spec.engine, spec.engine.block_size).plan(EngineConfig(Algorithm.TREE, 8, 4, 1024), slot)
    before, _, after = (list(part) for part in partition(launch.replace("\\\n", " ").split(), "…"))
    variables = dict(word.split("=") for word in before if "=" in word)
    assert dict(plan.env) == variables
    assert plan.argv[: len(before) - len(variables)] == tuple(before[len(variables) :])
    assert list(plan.argv[-len(after) :]) == after
