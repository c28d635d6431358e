"""A cluster that cannot be joined ends a sweep with one sentence."""

import pytest

from ddtree_tune.cluster.joining import joined
from ddtree_tune.core.errors import PlacementError
from tests.cluster.machines import free_port


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
