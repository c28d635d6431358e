"""What every test needs: Ray's token away from the home folder, before anything imports Ray."""

import os
import tempfile
from pathlib import Path

_TOKEN = Path(tempfile.mkdtemp(prefix="ddtree-tune-tests-")) / "token"
_TOKEN.write_text("0" * 64)
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(_TOKEN)}
