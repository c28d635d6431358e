"""The table of harness mistakes names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = {1, 3, 4, 5, 8, 9, 10, 11, 14, 16, 18, 19, 20, 21, 24, 25, 26, 32}


def test_every_row_names_a_test_that_exists():
    rows = [line.split(" | ") for line in (ROOT / "tests/truth/README.md").read_text().splitlines() if "::" in line]
    assert {int(row[0][3:]) for row in rows if row[0][2] == "D"} == ROWS
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[-1])
        assert named, row
        for path, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{test}"
