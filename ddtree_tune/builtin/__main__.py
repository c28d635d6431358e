"""``python -m ddtree_tune.builtin``: one server process, from the command line to its end."""

from __future__ import annotations

import sys

from ddtree_tune.builtin import options


def main() -> int:
    """Parse, fix the number of BLAS threads, and serve."""
    asked = options.parse(sys.argv[1:])
    options.fix_threads(asked.threads)
    from ddtree_tune.builtin.launch import launch  # noqa: PLC0415

    return launch(asked, sys.argv)


if __name__ == "__main__":
    sys.exit(main())
