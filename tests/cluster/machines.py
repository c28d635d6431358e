"""A Ray cluster of several raylets on one machine, as ``ray start`` makes it; its processes are ended by pid."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

RAY = str(Path(sys.executable).with_name("ray"))
COMMON = ("--block", "--min-worker-port=0", "--max-worker-port=0")
CPUS = 4
"""Of a node: Ray starts as many workers in advance."""
EXCLUSIVE = '{"sweep_node": 1}'


def free_port():
    """Above the ports that Ray keeps for its workers."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            if (port := one.getsockname()[1]) > 20000:
                return port


class Machines:
    """A head that offers no node, and nodes that join it."""

    def __init__(self, folder):
        self.folder = folder
        self.gcs = f"127.0.0.1:{free_port()}"
        dashboard = free_port()
        self.address = f"http://127.0.0.1:{dashboard}"
        self.nodes = []
        self._joined = 0
        self._all = []
        self._start(
            "--head",
            f"--port={self.gcs.rpartition(':')[2]}",
            "--num-cpus=1",
            "--num-gpus=0",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}",
            f"--ray-client-server-port={free_port()}",
            f"--temp-dir={folder}",
            "--disable-usage-stats",
        )
        wait_for(self._answers)

    def join(self, resources=EXCLUSIVE, address="127.0.0.1", gpus=0):
        """Start a node, an exclusive one if nothing else is said; its GPUs are what Ray is told."""
        # A folder of its own, as on a machine of its own: nodes that share one delete each other's working directories.
        apart = f"--temp-dir={self.folder}/{self._joined}"
        node = self._start(
            f"--address={self.gcs}",
            f"--num-cpus={CPUS}",
            f"--num-gpus={gpus}",
            f"--resources={resources}",
            apart,
            address=address,
        )
        self._joined += 1
        self.nodes.append(node)

    def end(self, process):
        """End a ``ray start`` and all that it started, as a power cut does."""
        with contextlib.suppress(psutil.NoSuchProcess):
            mine = psutil.Process(process.pid)
            for one in [mine, *mine.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait()

    def leave(self):
        """End every node, and wait until the head has seen it."""
        while self.nodes:
            self.end(self.nodes.pop())
        wait_for(lambda: self.up() == 0)

    def up(self):
        """How many nodes the head knows to be alive, itself aside."""
        return sum(node["state"] == "ALIVE" for node in self.listed("nodes")) - 1

    def applications(self):
        """Names of the applications that Serve keeps."""
        with self._client() as client:
            return set(client.get(f"{self.address}/api/serve/applications/").json()["applications"])

    def close(self):
        """End everything, the head last."""
        for process in reversed(self._all):
            self.end(process)

    def ray(self, *argv):
        """Run ``ray ...`` against the cluster."""
        environment = os.environ | {"RAY_ADDRESS": self.address}
        return subprocess.Popen(
            [RAY, *argv], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def stop(self, job):
        """Let Ray stop a job, as ``ray job stop`` does; whether it will."""
        with self._client() as client:
            return client.post(f"{self.address}/api/jobs/{job}/stop").json()["stopped"]

    def processes(self):
        """Every process below the cluster's."""
        alive = [psutil.Process(one.pid) for one in self._all if one.poll() is None]
        return [child for one in alive for child in one.children(recursive=True)]

    def listed(self, kind):
        """Actors or nodes as the dashboard lists them."""

        def asked():
            # A dashboard that has just started, or asks a node that is just gone, may hang up.
            with contextlib.suppress(httpx.TransportError), self._client() as client:
                return client.get(f"{self.address}/api/v0/{kind}")
            return None

        return wait_for(asked).json()["data"]["result"]["result"]

    def metrics(self):
        """All that the nodes export to Prometheus."""
        found = json.loads((self.folder / "prom_metrics_service_discovery.json").read_text())
        with self._client() as client:
            return "".join(client.get(f"http://{at}/metrics").text for one in found for at in one["targets"])

    def _answers(self):
        with contextlib.suppress(httpx.TransportError), self._client() as client:
            return client.get(f"{self.address}/api/jobs/").status_code == 200
        return False

    def _client(self):
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text()
        return httpx.Client(trust_env=False, timeout=30, headers={"Authorization": f"Bearer {token}"})

    def _start(self, *argv, address="127.0.0.1"):
        environment = {name: value for name, value in os.environ.items() if name not in {"RAY_ADDRESS", "PYTHONPATH"}}
        environment["RAY_worker_niceness"] = "0"  # as docs/cluster.md starts them
        own = (f"--node-ip-address={address}", f"--dashboard-agent-listen-port={free_port()}")
        with (self.folder / f"start-{len(self._all)}.log").open("w") as log:
            process = subprocess.Popen(
                [RAY, "start", *COMMON, *own, *argv],
                env=environment, stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        self._all.append(process)
        return process


def wait_for(condition, limit_s=120):
    """Poll until something is true, and return it."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return found
