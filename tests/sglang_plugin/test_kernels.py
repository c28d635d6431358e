"""What the interpreter runs elsewhere in these tests, the compiler takes as well."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_the_kernels_compile_for_hopper_and_blackwell(tmp_path):
    env = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), "90", "100"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines] == [
        [name, target] for target in ("90", "100") for name in ("build", "place", "walk")
    ]
    assert all(int(size) > 1000 for *_, size in lines)
