"""One embedded Ray for all cluster tests of a session: starting one takes seconds."""

import pytest


@pytest.fixture(scope="session")
def ray_nodes():
    """An embedded Ray with one exclusive node."""
    from ddtree_tune.cluster.placement import connected

    with connected() as nodes:
        yield nodes
