"""Ports, and the way from here to a server."""

import socket

import pytest

from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.node.sockets import listening, route_to, wait_free


@pytest.fixture
def elsewhere():
    """A port of one address of this machine that is not the usual one."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        yield server.getsockname()


def test_a_server_is_found_where_it_listens(elsewhere):
    host, port = elsewhere
    assert listening(port, host)
    assert not listening(port)


def test_a_port_is_free_when_nobody_listens_on_either_address(elsewhere):
    host, port = elsewhere
    wait_free([port], 0.0)
    with pytest.raises(EngineError, match="must be free") as raised:
        wait_free([port], 0.0, host)
    assert raised.value.failure is FailureClass.DIRTY_NODE


def test_a_route_names_both_ends_as_the_kernel_sends():
    route = route_to("http://127.0.0.2:30000", "gpu-1")
    assert (route.from_host, route.to_host, route.to_ip) == (socket.gethostname(), "gpu-1", "127.0.0.2")
    assert route.loopback
    by_name = route_to("http://localhost:30000", None)
    assert (by_name.to_host, by_name.loopback) == ("localhost", True)
    with socket.create_server(("127.0.0.2", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        assert route.from_ip == ours.getsockname()[0]


def test_a_host_that_nobody_knows_has_no_route():
    assert route_to("http://nowhere.invalid:30000", None) is None
