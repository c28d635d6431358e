"""A release that has drifted is named in one sentence, and a server asked for DDTREE then ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.faults import classify
from ddtree_tune.sglang_plugin import signatures


def written(folder: Path) -> Path:
    """A package of nothing but what the plugin is built on."""
    for source in {*signatures._FUNCTIONS, *signatures._FIELDS}:
        owners: dict[str, list[str]] = {}
        for name, parameters in signatures._FUNCTIONS.get(source, {}).items():
            owner, _, function = name.rpartition(".")
            owners.setdefault(owner, []).append(f"def {function}({', '.join(parameters.split())}): ...")
        for name, fields in signatures._FIELDS.get(source, {}).items():
            owners.setdefault(name, []).extend(f"{field}: int" for field in fields.split())
        text = ""
        for owner, lines in owners.items():
            text += (
                f"class {owner}:\n" + "".join(f"    {line}\n" for line in lines) if owner else "\n".join(lines) + "\n"
            )
        path = folder / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_what_it_is_built_on_has_not_drifted(tmp_path):
    assert signatures.first_drift(written(tmp_path)) is None


@pytest.mark.parametrize(
    ("source", "old", "new", "says"),
    [
        (
            "srt/speculative/dflash_worker_v2.py",
            "batch, on_publish, grammar_barrier",
            "batch, on_publish, grammar_barrier, pp_proxy_tensors",
            (
                "whose DFlashWorkerV2.forward_batch_generation takes (self, batch, on_publish, grammar_barrier, "
                "pp_proxy_tensors) and not (self, batch, on_publish, grammar_barrier)"
            ),
        ),
        ("srt/arg_groups/overrides.py", "resolved_view", "resolving_view", "overrides.py has no resolved_view"),
        (
            "srt/speculative/dflash_info.py",
            "custom_mask: int",
            "mask: int",
            "whose DFlashVerifyInput lacks custom_mask",
        ),
    ],
)
def test_a_drift_is_named(tmp_path, source, old, new, says):
    path = written(tmp_path) / source
    path.write_text(path.read_text().replace(old, new))
    assert says in signatures.first_drift(tmp_path)


def test_a_missing_source_is_named(tmp_path):
    (written(tmp_path) / "srt/managers/utils.py").unlink()
    assert signatures.first_drift(tmp_path) == "which has no srt/managers/utils.py"


def launched(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Load the plugin as SGLang does, which logs what a plugin raises and goes on."""
    program = (
        "from ddtree_tune.sglang_plugin.entry import register\n"
        "try:\n    register()\n"
        "except Exception as error:\n    print('swallowed', error)\n"
        "print('serving')\n"
    )
    package = folder / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    path = os.pathsep.join([str(folder), str(Path(signatures.__file__).parents[2])])
    return subprocess.run(
        [sys.executable, "-c", program, *argv],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_server_that_was_asked_for_trees_ends_where_the_plugin_cannot_register(tmp_path):
    done = launched(tmp_path, "--speculative-algorithm", "DDTREE")
    assert done.returncode == 2
    assert "serving" not in done.stdout
    assert "sglang: error: DDTREE must run on SGLang 0.5.17" in done.stderr
    assert "install sglang==0.5.17" in done.stderr
    fault = classify(done.stderr, done.returncode, ready=False)
    assert fault.failure is FailureClass.INVALID_CONFIG
    assert "DDTREE must run on SGLang 0.5.17" in fault.reason


def test_any_other_server_goes_on_without_it(tmp_path):
    done = launched(tmp_path, "--speculative-algorithm", "DFLASH")
    assert (done.returncode, done.stdout.strip()) == (0, "serving")


def test_the_gate_reads_the_sentence_of_a_drift_as_a_wrong_configuration():
    tail = (
        "Traceback (most recent call last):\n"
        '  File "algorithm.py", line 80, in handle_server_args\n'
        "ValueError: DDTREE must run on SGLang 0.5.17, but got 0.5.23, whose srt/arg_groups/overrides.py has no "
        "resolved_view; install sglang==0.5.17\n"
    )
    fault = classify(tail, 1, ready=False)
    assert fault.failure is FailureClass.INVALID_CONFIG
    assert "install sglang==0.5.17" in fault.reason
