"""A user's own prompts: a JSONL of whole ones, or a folder of texts to cut them from."""

import re

import pytest

from ddtree_tune.core.errors import LoadError
from ddtree_tune.node.prompts import load_prompts
from ddtree_tune.node.questions import FAMILIES
from tests.node.cutting import cut, grid
from tests.truth.server import TEMPLATE, count_words


def own_file(tmp_path, *rows):
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    return str(path)


def test_a_users_prompts_are_used_as_they_are_or_cut_at_the_front(truth, tmp_path):
    fits = " ".join(f"word{i}" for i in range(100 - TEMPLATE))
    long = "\\n".join(f"line {i} of many" for i in range(100))
    rows = [f'{{"prompt": "{fits}"}}', f'{{"prompt": "{long}", "family": "chat"}}', '{"prompt": "too short"}']
    prompts = load_prompts(own_file(tmp_path, *rows), seed=0, streams=1)
    first, second, third = cut(truth, prompts, 100, [(0, 0), (0, 1), (0, 2)])
    assert (first.text, first.family) == (fits, "own")
    assert second.text.endswith("line 99 of many")
    assert abs(second.tokens - 100) <= 8
    assert second.family == "chat"
    assert third.text == f"2. {fits}"  # what is too short is passed over; what is used again says so
    with pytest.raises(LoadError, match="can be cut to 4096 tokens"):
        cut(truth, prompts, 4096, [(0, 0)])


def test_a_users_prompts_never_repeat_and_are_cut_inside_a_paragraph(truth, tmp_path):
    rows = [f'{{"prompt": "{" ".join(f"p{row}w{i}" for i in range(900))}"}}' for row in range(3)]
    prompts = load_prompts(own_file(tmp_path, *rows, rows[0]), seed=0, streams=2)
    texts = [prompt.text for prompt in cut(truth, prompts, 300, grid(2, 4))]
    assert len(set(texts)) == 8
    assert all(abs(count_words(text) + TEMPLATE - 300) <= 8 for text in texts)
    assert sum(text.startswith("p") for text in texts) == 3  # one that stands there twice counts once


def test_a_users_folder_is_what_slices_are_cut_from(truth, tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "b.md").write_text(" ".join(f"prose{i}" for i in range(400)), encoding="utf-8")
    (folder / "deep/a.py").write_text("\n".join(f"x{i} = {i}" for i in range(200)), encoding="utf-8")
    (folder / ".git/c.txt").write_text("hidden " * 100, encoding="utf-8")
    (folder / "d.png").write_bytes(b"\x89PNG")
    prompts = load_prompts(str(folder), seed=0, streams=2, families=FAMILIES)
    some = cut(truth, prompts, 300, grid(2, 12))
    assert {prompt.family.split("/")[2] for prompt in some} == {"code", "prose"}
    for prompt in some:
        inside = prompt.text.split("```")[1] if prompt.family.endswith("/code") else prompt.text.split("\n\n")[0]
        assert re.search(r"x\d+ = \d+" if prompt.family.endswith("/code") else r"prose\d+ prose\d+", inside)
        assert "hidden" not in prompt.text
        assert abs(prompt.tokens - 300) <= 8
    assert len({prompt.text for prompt in some}) == 24
    with pytest.raises(LoadError, match=r"load\.prompts with more text"):
        cut(truth, prompts, 8192, [(0, 1)])
    (folder / "b.md").write_text("another text", encoding="utf-8")
    assert load_prompts(str(folder), seed=0, streams=2, families=FAMILIES).sha256 != prompts.sha256


def test_a_folder_without_readable_text_is_refused(tmp_path):
    with pytest.raises(
        LoadError, match=r"must hold text files such as \.txt, \.md or \.py, but got none among 0 files"
    ):
        load_prompts(str(tmp_path), seed=0, streams=1)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(LoadError, match=r"latin\.txt must be UTF-8, but got .* at byte 3; convert it"):
        load_prompts(str(tmp_path), seed=0, streams=1)


def test_a_bad_prompt_file_is_refused_with_its_line(tmp_path):
    with pytest.raises(LoadError, match=r"own\.jsonl:2 must be an object with a prompt"):
        load_prompts(own_file(tmp_path, '{"prompt": "a"}', '{"text": "b"}'), seed=0, streams=1)
    with pytest.raises(LoadError, match="must hold at least one prompt"):
        load_prompts(own_file(tmp_path, ""), seed=0, streams=1)
    with pytest.raises(LoadError, match="cannot read the prompts"):
        load_prompts(str(tmp_path / "missing.jsonl"), seed=0, streams=1)
