"""One truth server for the session, told anew by each test; sandboxes."""

import shutil

import pytest

from ddtree_tune.node.sandbox import open_sandbox
from tests.node.sandboxed import LEVELS
from tests.truth.harness import running


@pytest.fixture(scope="session")
def truth_process():
    """The process."""
    with running() as server:
        yield server


@pytest.fixture
def truth(truth_process):
    """The server with its default script and no memory."""
    truth_process.script()
    return truth_process


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request):
    """One sandbox of each level."""
    return open_sandbox(levels=[request.param])


@pytest.fixture(scope="module")
def best():
    """The strictest that works here."""
    return open_sandbox()


@pytest.fixture(scope="module")
def bwrap():
    """With bubblewrap."""
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    return open_sandbox(levels=["bwrap"])
