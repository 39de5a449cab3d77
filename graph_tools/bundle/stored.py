# SPDX-License-Identifier: Apache-2.0
"""Read tensors that are stored in a shard in one piece, with cursors that read their rows in order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Protocol

import numpy as np

from graph_tools.bundle.extent import Extent, ExtentFile
from graph_tools.tensors import Array, BaseTensor


class Cursor(Protocol):
    """Reads a tensor in order; the last row is returned only if the checksum of the whole tensor is right."""

    def fit(self, rows: int) -> int:
        """Return how many of the next `rows` rows may be taken at once, at least one."""
        ...

    def take(self, rows: int) -> Array:
        """Return the next rows [rows, ...]."""
        ...

    def close(self) -> None: ...


class StoredTensor(BaseTensor):
    """A tensor in one piece; subclasses implement `cursor`."""

    def __init__(self, extent: Extent, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.extent = extent
        self.dtype = dtype
        self.shape = shape

    def cursor(self) -> Cursor:
        raise TypeError(f"{type(self).__name__}: no cursor, expected the class to define one")

    def chunks(self, rows: int) -> Iterator[Array]:
        left = self.shape[0] if self.shape else 1
        with closing(self.cursor()) as cursor:
            while left:
                count = cursor.fit(min(rows, left))
                block = cursor.take(count)
                yield block if self.shape else block.reshape(())
                left -= count


class NumericTensor(StoredTensor):
    """Numbers, stored as their bytes one after another."""

    def cursor(self) -> Cursor:
        return _NumericCursor(self)

    def read(self) -> Array:
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        return next(self.chunks(self.shape[0] if self.shape else 1))

    def between(self, begin: int, end: int) -> Array:
        """Read only these rows; the checksum is compared only if a tensor is read to its end."""
        out = np.empty((end - begin, *self.shape[1:]), self.dtype)
        if out.size:
            row = math.prod(self.shape[1:]) * self.dtype.itemsize
            with closing(ExtentFile(self.extent)) as file:
                file.read_into(out.reshape(-1).view(np.uint8), begin * row)
        return out


class _NumericCursor:
    def __init__(self, tensor: StoredTensor) -> None:
        self._tensor = tensor
        self._row_shape = tensor.shape[1:]
        self._file = ExtentFile(tensor.extent)
        self._position = 0
        self._crc = 0

    def fit(self, rows: int) -> int:
        return rows

    def take(self, rows: int) -> Array:
        out = np.empty((rows, *self._row_shape), self._tensor.dtype)
        if not math.prod(out.shape):
            return out
        raw = out.reshape(-1).view(np.uint8)
        self._crc = self._file.read_summed(raw, self._position, self._crc)
        self._position += len(raw)
        if self._position == self._tensor.extent.size:
            self._tensor.extent.check_crc(self._crc)
        return out

    def close(self) -> None:
        self._file.close()
