"""Ports of this machine: fresh ones, and who listens where."""

from __future__ import annotations

import random
import socket
import time
from typing import TYPE_CHECKING

import psutil

from ddtree_tune.core.errors import EngineError, FailureClass

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


def listening(port: int) -> bool:
    """Whether anybody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def wait_free(ports: Iterable[int], limit_s: float) -> None:
    """Wait until nobody listens on any of the ports.

    Raises:
        EngineError: somebody still does (`dirty_node`).
    """
    deadline = time.monotonic() + limit_s
    while taken := [port for port in ports if listening(port)]:
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
