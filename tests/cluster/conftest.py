"""What cluster tests share, because each takes seconds: one embedded Ray, one embedded sweep, one cluster."""

import pytest

from tests.cluster.tiny import TINY_SWEEP, command


@pytest.fixture(scope="session")
def ray_nodes():
    """An embedded Ray with one exclusive node."""
    from ddtree_tune.cluster.placement import connected

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
