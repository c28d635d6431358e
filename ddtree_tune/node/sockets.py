"""Ports of this machine: fresh ones, and who listens where."""

from __future__ import annotations

import random
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.core.trace import NetworkRoute

if TYPE_CHECKING:
    from collections.abc import Iterable

HOST = "127.0.0.1"
POLL_S = 0.05
_LOW, _HIGH = 20_000, 32_000
"""Below what Linux hands out by itself (from 32768), so that nobody takes a port between our look and the launch."""
_DERIVED = (1, *range(233, 250))
"""SGLang under data-parallel attention opens ports from 233 above its own; the one beside it is for NCCL."""
_TRIES = 200


def fresh_ports() -> tuple[int, ...]:
    """A port for a server and those that it derives from it, the server's first; nobody listens on any.

    Raises:
        EngineError: there is no such block of ports (`port_conflict`).
    """
    pick = random.SystemRandom()
    for _ in range(_TRIES):
        port = pick.randrange(_LOW, _HIGH)
        ports = (port, *(port + above for above in _DERIVED))
        if all(map(_is_free, ports)):
            return ports
    raise EngineError(
        f"a block of free ports must be between {_LOW} and {_HIGH}, but got none in {_TRIES} tries; "
        "see who listens there with ss -ltnp",
        FailureClass.PORT_CONFLICT,
    )


def listening(port: int, host: str = HOST) -> bool:
    """Whether anybody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


def route_to(base_url: str, host_name: str | None) -> NetworkRoute | None:
    """The way from this machine to a server, as the kernel would send a packet now; nothing is sent.

    Args:
        base_url: of the server.
        host_name: of the server's machine; the host in the address when None.

    Returns:
        None where no way is known.
    """
    at = urlsplit(base_url)
    try:
        family, kind, _, _, there = socket.getaddrinfo(at.hostname, at.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            from_ip, to_ip = probe.getsockname()[0], probe.getpeername()[0]
    except OSError:
        return None
    return NetworkRoute(socket.gethostname(), from_ip, host_name or at.hostname or to_ip, to_ip)


def wait_free(ports: Iterable[int], limit_s: float, host: str = HOST) -> None:
    """Wait until nobody listens on any of the ports, neither on loopback nor on the server's address.

    Raises:
        EngineError: somebody still does (`dirty_node`).
    """
    deadline = time.monotonic() + limit_s
    while taken := [port for port in ports if any(listening(port, one) for one in {HOST, host})]:
        if time.monotonic() > deadline:
            raise EngineError(
                f"port {taken[0]} must be free after the server was stopped, but got a listener still after "
                f"{limit_s:g} s; see who it is with ss -ltnp",
                FailureClass.DIRTY_NODE,
            )
        time.sleep(POLL_S)


def owns_port(pids: set[int], port: int) -> bool | None:
    """Whether one of the processes listens on the port; None if the system does not say."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None
    heard = [one for one in connections if one.status == psutil.CONN_LISTEN and one.laddr]
    owners = {one.pid for one in heard if one.laddr and one.laddr.port == port}
    return bool(owners & pids) if owners - {None} else None


def _is_free(port: int) -> bool:
    """Whether a server could bind the port on every address."""
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
        return True
