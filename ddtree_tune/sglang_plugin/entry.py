"""SGLang's door: registers the algorithm DDTREE in every process that loads plugins.

SGLang logs what a plugin raises and goes on without it. So this module imports nothing that could
fail; what can be told about the release is told when DDTREE is asked for, as the error of an
argument; and where not even registering works, a server that was asked for DDTREE ends at once.
"""

from __future__ import annotations

import logging
import sys

NAME = "DDTREE"

logger = logging.getLogger(__name__)


def register() -> None:
    """Add the algorithm; the entry point of ``sglang.srt.plugins``."""
    try:
        from ddtree_tune.sglang_plugin.algorithm import add  # noqa: PLC0415 - see the module

        add(NAME)
    except Exception as error:
        from ddtree_tune.sglang_plugin.signatures import SUPPORTED, advice  # noqa: PLC0415 - see the module

        sentence = f"DDTREE must run on SGLang {SUPPORTED}, but got one that takes no such plugin ({error}); {advice()}"
        if any(word.partition("=")[2].upper() == NAME or word.upper() == NAME for word in sys.argv):
            print(f"sglang: error: {sentence}", file=sys.stderr, flush=True)
            raise SystemExit(2) from error
        logger.exception("%s", sentence)
