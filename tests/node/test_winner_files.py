"""What launches the winner does: each file starts the built-in engine with the setting that it names."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

import pytest
import yaml

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.engine import Algorithm, Slot
from ddtree_tune.core.launch import winner_script
from ddtree_tune.core.manifest import winner_manifest
from tests.builders import DIALECT, NONE
from tests.builtin.harness import Server, free_port
from tests.core.test_conclusion import BIG, SMALL, SPEED, SWEEP, finals, search, users


def launched():
    """A sweep with one winner at one user, and no speculation at eight, each with the launch of its own trial."""
    speed = {**SPEED, NONE: 1.0, BIG: users(2.0, 0.7), SMALL: users(1.9, 0.6)}
    speed = {config: factor for config, factor in speed.items() if config.algorithm is not Algorithm.CHAIN}
    slot = Slot("127.0.0.1", 40123, "trial-nonce", None, None, 8, env=(("DDTREE_NOTE", "a $(b) 'c'"),))
    return [replace(one, plan=DIALECT.plan(one.config, slot)) for one in (*search(speed), *finals(speed))]


def container(deployment, port):
    """Command and variables of a container, resolved as Kubernetes does, listening on loopback instead."""
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in found["env"]} | {"HOST": "127.0.0.1", "PORT": str(port)}

    def resolved(text):
        return re.sub(r"\$\$|\$\((\w+)\)", lambda match: given.get(match[1], match[0]) if match[1] else "$", text)

    return [resolved(word) for word in (*found["command"], *found["args"])], {
        name: resolved(value) for name, value in given.items()
    }


@contextmanager
def running(command, variables, port, log):
    """A server that runs until the block ends."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env={**os.environ, "PATH": path, **variables}
        )
    try:
        yield Server(process, port, log)
    finally:
        process.terminate()
        process.wait(20)


def info(server):
    """What a server says of itself once it is ready, and one completion."""
    deadline = time.monotonic() + 60
    while True:
        assert server.process.poll() is None, server.log.read_text()
        assert time.monotonic() < deadline, server.log.read_text()
        with suppress(URLError, ConnectionError):
            if server.request("/health")[0] == 200:
                break
        time.sleep(0.05)
    (model,) = server.json("/v1/models")["data"]
    asked = {"model": model["id"], "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
    assert server.json("/v1/chat/completions", asked)["usage"]["completion_tokens"] > 0
    return DIALECT.read_back(server.json("/server_info"), NONE)


@pytest.mark.timeout(180)
def test_script_and_manifest_start_the_winner_and_what_is_best_for_many_users(tmp_path):
    records = launched()
    conclusion = conclude(records, SWEEP)
    assert [band.config for band in conclusion.bands] == [BIG, NONE]
    script = tmp_path / "winner.sh"
    script.write_text(winner_script(conclusion, records, SWEEP))
    first, second, service = yaml.safe_load_all(winner_manifest(conclusion, records, SWEEP))
    assert service["kind"] == "Service"
    assert [one["spec"]["replicas"] for one in (first, second)] == [1, 0]
    best = conclusion.best.config
    other = NONE if best == BIG else BIG
    ports = [free_port() for _ in range(4)]
    commands = [
        (["sh", str(script)], {"PORT": str(ports[0])}),
        (["sh", str(script), "1" if best == NONE else "9"], {"PORT": str(ports[1])}),
        container(first, ports[2]),
        container(second, ports[3]),
    ]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running(*one, port, tmp_path / f"{port}.log"))
            for one, port in zip(commands, ports, strict=True)
        ]
        found = [info(one) for one in servers]
        environments = [Path(f"/proc/{one.process.pid}/environ").read_bytes().split(b"\0") for one in servers]
    assert [(one.algorithm, one.budget) for one in found] == [
        (config.algorithm, config.budget) for config in (best, other, best, other)
    ]
    assert {one.served_model_name for one in found} == {"default"}
    assert all(b"DDTREE_NOTE=a $(b) 'c'" in one for one in environments)


def test_the_script_refuses_what_is_no_number(tmp_path):
    records = launched()
    script = tmp_path / "winner.sh"
    script.write_text(winner_script(conclude(records, SWEEP), records, SWEEP))
    done = subprocess.run(["sh", str(script), "many"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "winner.sh: must get a number, but got many\n"
