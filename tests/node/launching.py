"""Launches an engine and waits for it, as a trial does."""

from ddtree_tune.core.engine import Starting


def start(engine, config):
    """The handle of the server, once it is ready."""
    engine.launch(config)
    while isinstance(found := engine.ready(5), Starting):
        pass
    return found
