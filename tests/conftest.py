"""What every test needs: Ray's token away from the home folder, before anything imports Ray; patience."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

# How long an example takes, or takes to draw, is the machine's affair.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_FOLDER = tempfile.TemporaryDirectory(prefix="ddtree-tune-tests-")
_TOKEN = Path(_FOLDER.name) / "token"
_TOKEN.write_text("0" * 64)
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(_TOKEN)}


def pytest_unconfigure():
    """Leave nothing behind."""
    _FOLDER.cleanup()
