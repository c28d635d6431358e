"""The folder listing is the architecture: imports go one way, and core needs nothing but itself."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE = ["ray", "torch", "sglang", "httpx", "optuna", "rich", "starlette", "uvicorn"]


def test_imports_keep_to_the_contracts():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "0 broken" in done.stdout, done.stdout + done.stderr
    assert "kept" in done.stdout


@pytest.mark.parametrize(
    "module",
    ["ddtree_tune.trial", "ddtree_tune.ports"]
    + [f"ddtree_tune.core.{path.stem}" for path in sorted((ROOT / "ddtree_tune/core").glob("[a-z]*.py"))],
)
def test_core_and_trial_import_with_everything_outside_blocked(module):
    code = f"import sys; sys.modules.update(dict.fromkeys({OUTSIDE!r})); import {module}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_file_grows_beyond_one_idea():
    files = [path for path in (ROOT / "ddtree_tune").rglob("*.py") if "pair" not in path.parts]
    assert len(files) > 30
    long = {str(path.relative_to(ROOT)): n for path in files if (n := len(path.read_text().splitlines())) > 300}
    assert not long
