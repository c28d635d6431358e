"""What cluster tests share, because each takes seconds: one embedded Ray, one embedded sweep, one cluster."""

import tempfile
from pathlib import Path

import pytest

from tests.cluster.machines import Machines
from tests.cluster.tiny import TINY_SWEEP, command


@pytest.fixture(scope="session")
def ray_nodes():
    """An embedded Ray with one exclusive node."""
    from ddtree_tune.cluster.joining import connected

    with connected() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def embedded_sweep(tmp_path_factory):
    """The tiny sweep on an embedded Ray: what the command printed, and its folder of results."""
    home = tmp_path_factory.mktemp("embedded")
    (home / "tiny.yaml").write_text(TINY_SWEEP)
    done = command("ddtree_tune.run", str(home / "tiny.yaml"), "--results", str(home / "results"))
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (home / "results").iterdir()
    return done, folder


@pytest.fixture(scope="session")
def machines():
    """A head; a test that needs it without a node leaves it so."""
    # A short path: Ray's sockets lie below it, and a socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        one = Machines(Path(folder))
        yield one
        one.close()
