"""One truth server for the session, told anew by each test."""

import pytest

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
