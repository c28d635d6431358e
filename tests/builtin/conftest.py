"""The pair, loaded once, and its server."""

import pytest

from ddtree_tune.builtin.text import TextCodec
from ddtree_tune.builtin.weights import load_drafter, load_target
from tests.builtin.harness import NONE, PAIR, QUESTIONS, replies_to, serving


@pytest.fixture(scope="session")
def pair():
    target = load_target(PAIR / "target")
    return target, load_drafter(PAIR / "draft", target)


@pytest.fixture(scope="session")
def codec():
    return TextCodec(PAIR / "target")


@pytest.fixture(scope="session")
def prompts(codec):
    texts = [codec.render([{"role": "user", "content": question}], {}) for question in QUESTIONS]
    return [codec.encode(text, special=False) for text in texts]


@pytest.fixture(scope="session")
def plain(pair, prompts):
    """Greedy replies without speculation, one request at a time."""
    replies = replies_to(pair, NONE, prompts)
    assert all(len(reply) > 20 for reply in replies)
    return replies


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A process that drafts trees, shared by a file."""
    with serving(tmp_path_factory.mktemp("server"), "--budget", "8", "--topk", "4", "--window", "64") as running:
        yield running


@pytest.fixture(scope="module")
def undrafted(tmp_path_factory):
    """A process without speculation that runs two requests at a time."""
    folder = tmp_path_factory.mktemp("undrafted")
    with serving(folder, "--algorithm", "none", "--max-running-requests", "2") as running:
        yield running
