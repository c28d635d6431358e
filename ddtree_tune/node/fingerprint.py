"""Says what this machine is and which software runs on it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ddtree_tune.core.record import Fingerprint

PACKAGES = ("ddtree-tune", "numpy", "optuna", "ray", "httpx", "pyarrow", "uvicorn", "starlette", "tokenizers", "sglang")
"""What our own numbers depend on."""
SERVER_PACKAGES = ("sglang-kernel", "flashinfer-python", "transformers", "torch")
"""What an engine's numbers depend on besides, where they are installed."""
ASK_S = 10.0


def fingerprint() -> Fingerprint:
    """Read this node; what the system does not say is None."""
    commit = _ask("git", "rev-parse", "HEAD") if _own_checkout() else None
    dirty = _ask("git", "status", "--porcelain") if commit else None
    gpus = _ask("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    rows = [line.split(", ") for line in gpus.splitlines() if line.strip()] if gpus else []
    return Fingerprint(
        hostname=platform.node(),
        machine=f"{_processor()} x {os.cpu_count()}",
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=tuple(f"{row[0]} {row[1]}" for row in rows),
        driver=rows[0][2] if rows else None,
        os=platform.platform(),
        python=platform.python_version(),
        packages=tuple((name, version) for name in PACKAGES + SERVER_PACKAGES if (version := _version(name))),
        git_commit=commit.strip() if commit else None,
        git_dirty=None if commit is None or dirty is None else bool(dirty.strip()),
        load_average=round(os.getloadavg()[0], 2),
        blas=_blas(),
    )


class ThisNode:
    """``ports.Node`` of this machine."""

    def fingerprint(self) -> Fingerprint:
        """See ``ports.Node``."""
        return fingerprint()

    def now_s(self) -> float:
        """See ``ports.Node``."""
        return time.monotonic()

    def utc(self) -> str:
        """See ``ports.Node``."""
        return datetime.now(UTC).isoformat(timespec="seconds")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _own_checkout() -> bool:
    """Whether this package runs from its own repository, and not inside somebody else's."""
    return (Path(__file__).parents[2] / ".git").exists()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> str | None:
    info: Any = np.show_config(mode="dicts")
    blas = info.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name')} {blas.get('version')}" if blas else None


def _ask(*argv: str) -> str | None:
    """A program's output, from this package's folder; None if it is missing or fails."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=ASK_S, check=False, cwd=Path(__file__).parent
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None
