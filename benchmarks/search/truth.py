"""What is true of settings that were measured once or twice.

The mean of two trials is off by more than the best settings differ, and the best of many such means
is a lucky one. So what the rest of the surface says of a setting counts too: effects of each knob and
of each pair of knobs, shrunk, fitted without the setting itself. The two are averaged by how far each
is off, which the repeats and the fit's own misses tell. No shape is assumed along a knob: a cliff
between two budgets stays one.

Source: a ridge regression on indicators with leave-one-out predictions; the average is the best linear
estimate of a random effect (Robinson, That BLUP is a good thing, 1991).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.engine import Algorithm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ddtree_tune.core.engine import EngineConfig

_RIDGE_KNOBS, _RIDGE_PAIRS = 0.01, 3.0
"""Penalties with which settings that were left out were foretold best, of eight from 0.01 to 1e6."""


def estimated(logs: Mapping[EngineConfig, NDArray[np.float64]]) -> dict[EngineConfig, NDArray[np.float64]]:
    """What is true of each setting and cell, (cells,) float64.

    Args:
        logs: by setting, of its trials, (trials, cells) float64; some setting has several.
    """
    means = {config: one.mean(axis=0) for config, one in logs.items()}
    trees = [config for config in logs if config.algorithm is Algorithm.TREE]
    freedom = sum(len(logs[config]) - 1 for config in trees)
    noise = np.sum([((logs[config] - means[config]) ** 2).sum(axis=0) for config in trees], axis=0) / freedom
    said = dict(zip(trees, _left_out(trees, [logs[config] for config in trees]), strict=True))
    misses = np.concatenate([(logs[config] - said[config]) ** 2 for config in trees])
    own = np.maximum(misses.mean(axis=0) - noise, 1e-12)
    for config in trees:
        share = own / (own + noise / len(logs[config]))
        means[config] = share * means[config] + (1 - share) * said[config]
    return means


def _left_out(configs: Sequence[EngineConfig], logs: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """What the other settings' trials say of each setting, (cells,) float64."""
    features = _features(configs)
    rows = np.repeat(np.arange(len(configs)), [len(one) for one in logs])
    values = np.vstack(logs)
    found = []
    for at in range(len(configs)):
        others = rows != at
        seen, level = features[rows[others]], values[others].mean(axis=0)
        weights = np.linalg.solve(seen @ seen.T + np.eye(len(seen)), values[others] - level)
        found.append(level + features[at] @ seen.T @ weights)
    return found


def _features(configs: Sequence[EngineConfig]) -> NDArray[np.float64]:
    """Indicators of every value of each knob and of each pair, scaled by their penalties, (n, features) float64."""
    knobs = [np.asarray([getattr(one, name) or 0 for one in configs]) for name in ("budget", "topk", "window")]
    single = [(knob[:, None] == np.unique(knob)).astype(np.float64) for knob in knobs]
    pairs = [(a[:, :, None] * b[:, None, :]).reshape(len(configs), -1) for a, b in itertools.combinations(single, 2)]
    return np.hstack(
        [np.ones((len(configs), 1)), np.hstack(single) / _RIDGE_KNOBS**0.5, np.hstack(pairs) / _RIDGE_PAIRS**0.5]
    )
