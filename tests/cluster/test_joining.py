"""A cluster that cannot be joined ends a sweep with one sentence."""

import pytest

from ddtree_tune.cluster.joining import joined
from ddtree_tune.core.errors import PlacementError
from tests.cluster.machines import free_port
from tests.cluster.tiny import TINY_SWEEP, command


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:{}", "refused"),
        ("nonsense", "Invalid address"),
        ("http://127.0.0.1:8265", "HTTP address"),
    ],
)
def test_an_address_where_no_cluster_is_is_one_sentence(monkeypatch, address, why):
    address = address.format(free_port())
    monkeypatch.setenv("RAY_ADDRESS", address)
    with (
        pytest.raises(PlacementError, match=r"^RAY_ADDRESS must name a running cluster of Ray ") as caught,
        joined(),
    ):
        pass
    assert address in str(caught.value)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_ray_that_cannot_start_here_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    (tmp_path / "tiny.yaml").write_text(TINY_SWEEP)
    done = command("ddtree_tune.run", str(tmp_path / "tiny.yaml"), "--results", str(tmp_path / "results"))
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    assert (
        "Ray must be able to start on this machine, but got RAY_AUTH_TOKEN_PATH is set but file cannot be"
        in done.stderr
    )
