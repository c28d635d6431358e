"""The search space: which settings there are, and how far they are from each other.

Every axis is a finite ladder of values, so the space is a finite list of points. Points that the
dialect says are one server are one point, named by the canonical configuration. Distance is
counted in octaves: budget 8 is as far from 16 as 16 is from 32.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import numpy as np

from ddtree_tune.core.engine import Algorithm, EngineConfig, Scalar
from ddtree_tune.core.spec import Range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ddtree_tune.core.dialects import Dialect
    from ddtree_tune.core.spec import SpaceSpec

RANGE_STEPS = 32
"""Values of a range that are tried at most: a finer ladder is below what a measurement tells apart."""
Place: TypeAlias = dict[str, float]
"""Where a configuration lies: a coordinate by axis."""
_KNOBS = ("budget", "topk", "window")


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob and the values it may take."""

    name: str
    values: tuple[Scalar, ...]
    ordered: bool
    """Whether values have a distance; otherwise every value is as far from each other one."""

    def coordinate(self, value: Scalar) -> float | None:
        """Octaves on an ordered axis, the value's index on another; None if it has no place.

        No window at all lies one octave beyond the widest listed one.
        """
        if not self.ordered:
            return next((float(i) for i, listed in enumerate(self.values) if _same(value, listed)), None)
        if value is None and self.name == "window":
            return math.log2(2 * max((v for v in self.values if isinstance(v, int)), default=1))
        return math.log2(value) if _is_size(value) else None


@dataclass(frozen=True, slots=True)
class Space:
    """The axes and every distinct point of them."""

    axes: tuple[Axis, ...]
    points: dict[str, EngineConfig]
    """Canonical configurations by id, in the order of the listed values, the last axis fastest."""
    places: dict[str, Place]
    """Where each point lies, by id; of requested points that are one server, the first."""

    @classmethod
    def of(cls, spec: SpaceSpec, dialect: Dialect) -> Space:
        """List the points of a spec."""
        space = cls(_axes(spec), {}, {})
        names = [axis.name for axis in space.axes]
        for values in itertools.product(*(axis.values for axis in space.axes)):
            asked = resolve(dict(zip(names, values, strict=True)))
            config = dialect.canonical(asked)
            place = space.place(asked)
            if place is not None and config.config_id not in space.points:
                space.points[config.config_id] = config
                space.places[config.config_id] = place
        return space

    def place(self, config: EngineConfig) -> Place | None:
        """Where a configuration lies, by axis.

        Returns:
            None if the space has no place for it, as for a baseline or a seed with a flag value
            that is not listed. A budget between the listed ones has a place.
        """
        if (known := self.places.get(config.config_id)) is not None:
            return known
        values: dict[str, Scalar] = dict(config.flags)
        values |= {"budget": config.budget, "topk": config.topk, "window": config.window}
        if config.algorithm is not Algorithm.TREE or set(values) != {axis.name for axis in self.axes}:
            return None
        found = {axis.name: axis.coordinate(values[axis.name]) for axis in self.axes}
        place = {name: at for name, at in found.items() if at is not None}
        return place if len(place) == len(found) else None

    def encode(self, place: Place) -> NDArray[np.float64]:
        """A place as one row of numbers.

        Returns:
            (D,) float64: one octave number per ordered axis, one 0 or 1 per value of another, so
            that two different values are sqrt(2) octaves apart.
        """
        row: list[float] = []
        for axis in self.axes:
            at = place[axis.name]
            row.extend([at] if axis.ordered else [float(i == at) for i in range(len(axis.values))])
        return np.asarray(row, dtype=np.float64)

    def columns(self) -> tuple[slice, ...]:
        """Which columns of an encoded row belong to each axis."""
        widths = [1 if axis.ordered else len(axis.values) for axis in self.axes]
        ends = list(itertools.accumulate(widths))
        return tuple(slice(end - width, end) for end, width in zip(ends, widths, strict=True))


def resolve(point: Mapping[str, Scalar]) -> EngineConfig:
    """The tree configuration at one value per axis; names beyond the three knobs are flags."""
    flags = tuple(sorted((name, value) for name, value in point.items() if name not in _KNOBS))
    budget, topk, window = (point[name] for name in _KNOBS)
    return EngineConfig(Algorithm.TREE, _size(budget), _size(topk), None if window is None else _size(window), flags)


def size_key(config: EngineConfig) -> tuple[int, ...]:
    """Orders configurations by what they ask of the machine: what decides a tie."""
    order = (Algorithm.NONE, Algorithm.CHAIN_UNRESTRICTED, Algorithm.CHAIN, Algorithm.TREE)
    rank = order.index(config.algorithm)
    unlimited = config.window is None
    return (rank, config.budget or 0, config.topk or 0, int(unlimited), config.window or 0)


def _axes(spec: SpaceSpec) -> tuple[Axis, ...]:
    windows = spec.window
    values: tuple[Scalar, ...]
    if isinstance(windows, Range):
        values = _ladder(windows)
    else:
        values = tuple(None if window == "none" else window for window in windows)
    knobs = (
        Axis("budget", _ladder(spec.budget) if isinstance(spec.budget, Range) else spec.budget, ordered=True),
        Axis("topk", _ladder(spec.topk) if isinstance(spec.topk, Range) else spec.topk, ordered=True),
        Axis("window", values, ordered=True),
    )
    flags = (Axis(name, listed, ordered=all(map(_is_size, listed))) for name, listed in sorted(spec.flags.items()))
    return (*knobs, *flags)


def _ladder(span: Range) -> tuple[int, ...]:
    """At most RANGE_STEPS integers from low to high, both included."""
    count = min(RANGE_STEPS, span.high - span.low + 1)
    steps = (np.geomspace if span.log else np.linspace)(span.low, span.high, count)
    return tuple(dict.fromkeys(round(step) for step in steps.tolist()))


def _is_size(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _same(one: Scalar, other: Scalar) -> bool:
    """Equality that keeps 1 and True apart, as the configuration's identity does."""
    return type(one) is type(other) and one == other


def _size(value: Scalar) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a knob must be an integer, but got {value!r}")
    return value
