"""Trains the built-in engine's tiny pair: a thinking coder and the drafter that serves it.

`python -m ddtree_tune.builtin.train --out DIR` makes tasks, a tokenizer, the target and the drafter
from nothing but the standard library's text. Only this folder imports torch (`pip install
ddtree-tune[train]`); `chat`, `tasks`, `families`, `corpus` and `problems` work without it.
"""
