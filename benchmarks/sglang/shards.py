"""Models in bfloat16 as Hugging Face has them, written as fast as memory is copied.

NumPy has no bfloat16, so values are the upper halves of float32 as uint16. A tensor is a fill and, in
its upper left corner, what is known of it; a fill is read from one pool at ever other places, so that
nothing as large as a model is drawn or held.
"""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SHARD_BYTES = 4_000_000_000
"""A file's most, its header aside."""
_POOL = 16_777_213
"""Values; a prime, so that rows and tensors, whose sizes are round, begin at ever other places."""
_SPREAD = 0.02
"""Standard deviation of the noise, what models are commonly initialised with."""
_BYTES = 2


class Fill(Enum):
    """What a tensor holds where nothing is known of it."""

    ZERO = auto()
    ONE = auto()
    NOISE = auto()


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a model."""

    name: str
    shape: tuple[int, ...]
    fill: Fill
    corner: NDArray[np.uint16] | None = None
    """(rows, columns) or (columns,) uint16: what is known."""

    @property
    def values(self) -> int:
        """How many it has."""
        return math.prod(self.shape)

    def array(self, start: int = 0) -> NDArray[np.uint16]:
        """All of it, its fill from this place of the pool."""
        whole = np.concatenate(list(_pieces(self.fill, self.values, start))).reshape(self.shape)
        if self.corner is not None:
            whole[tuple(slice(size) for size in self.corner.shape)] = self.corner
        return whole

    def pieces(self, start: int) -> Iterator[NDArray[np.uint16]]:
        """All of it in order, copied only where something is known."""
        return _pieces(self.fill, self.values, start) if self.corner is None else iter([self.array(start)])


def write_model(folder: Path, tensors: Iterable[Tensor], shard_bytes: int = SHARD_BYTES) -> None:
    """Write a model's tensors, in one file or in several with an index.

    Args:
        folder: is there.
        tensors: in order.
        shard_bytes: most of one file.
    """
    shards = list(_pack(tensors, shard_bytes))
    count = len(shards)
    names = [f"model-{at:05d}-of-{count:05d}.safetensors" for at in range(1, count + 1)]
    if count == 1:
        names = ["model.safetensors"]
    else:
        where = {one.name: name for name, shard in zip(names, shards, strict=True) for one in shard}
        size = _BYTES * sum(one.values for shard in shards for one in shard)
        index = {"metadata": {"total_size": size}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    for fill in Fill:
        _pool(fill)  # before threads would each make it
    with ThreadPoolExecutor() as pool:
        list(pool.map(_write, [folder / name for name in names], shards, range(count)))


def _pack(tensors: Iterable[Tensor], shard_bytes: int) -> Iterator[list[Tensor]]:
    """Fill one file after the other."""
    shard: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if shard and size + _BYTES * tensor.values > shard_bytes:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += _BYTES * tensor.values
    yield shard


def _write(path: Path, tensors: Sequence[Tensor], number: int) -> None:
    """One file: the length of its header, the header, the values."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + _BYTES * tensor.values
        header[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    start = number * _POOL // 2
    with path.open("wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            for piece in tensor.pieces(start):
                left = memoryview(piece.reshape(-1)).cast("B")
                while left:  # a raw file writes no more than 2 GB at once
                    left = left[file.write(left) :]
            start += tensor.values


def _pieces(fill: Fill, values: int, start: int) -> Iterator[NDArray[np.uint16]]:
    pool, at = _pool(fill), start % _POOL
    while values:
        piece = pool[at : at + values]
        yield piece
        values, at = values - len(piece), 0


@cache
def _pool(fill: Fill) -> NDArray[np.uint16]:
    match fill:
        case Fill.ZERO:
            return np.zeros(_POOL, np.uint16)
        case Fill.ONE:
            return bfloat16(np.ones(_POOL, np.float32))
        case Fill.NOISE:
            noise = np.random.default_rng(0).standard_normal(_POOL, np.float32)
            return bfloat16(noise * np.float32(_SPREAD))


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves; exact where the lower ones are empty."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def float32(values: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The same values."""
    return (values.astype(np.uint32) << 16).view(np.float32)
