# SPDX-License-Identifier: Apache-2.0
"""Describe tensors that may be larger than memory, without loading their elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

# Large enough for sequential speed, small enough that memory for a few chunks is never a problem.
CHUNK_BYTES = 32 << 20


class TensorSource(Protocol):
    """A tensor of known dtype and shape whose rows can be read in order, any number of times.

    Attributes
    ----------
    dtype : numpy dtype
        `object` means strings: elements are `bytes`.
    shape : tuple of int
    """

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def chunks(self, rows: int) -> Iterator[Array]:
        """Yield consecutive blocks [<= rows, ...] along the first axis; a scalar is one block of shape []."""
        ...

    def read(self) -> Array:
        """Return the whole tensor."""
        ...


class BaseTensor:
    """Implements the common part of every `TensorSource`; subclasses provide `dtype`, `shape` and `chunks`."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def chunks(self, rows: int) -> Iterator[Array]:
        raise TypeError(f"{type(self).__name__}: no chunks, expected the class to define them")

    def read(self) -> Array:
        whole = np.empty(self.shape, self.dtype)
        if not self.shape:
            return next(self.chunks(1)).reshape(())
        begin = 0
        for chunk in self.chunks(rows_per_chunk(self)):
            whole[begin : begin + len(chunk)] = chunk
            begin += len(chunk)
        return whole


class ArrayTensor(BaseTensor):
    """A tensor in memory."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.dtype = array.dtype
        self.shape = array.shape

    def chunks(self, rows: int) -> Iterator[Array]:
        if not self.shape:
            yield self.array
            return
        for begin in range(0, len(self.array), rows):
            yield self.array[begin : begin + rows]

    def read(self) -> Array:
        return self.array

    def between(self, begin: int, end: int) -> Array:
        return self.array[begin:end]


@dataclass
class StreamTensor(BaseTensor):
    """A tensor that is computed from others while it is read.

    Attributes
    ----------
    dtype, shape : as in `TensorSource`
    make : callable
        Receives the number of rows per block and returns the blocks, which may be smaller but never larger.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    make: Callable[[int], Iterator[Array]]

    def chunks(self, rows: int) -> Iterator[Array]:
        return self.make(rows)


class Concatenated(BaseTensor):
    """Several tensors in sequence along the first axis, with equal dtypes and row shapes."""

    def __init__(self, parts: list[TensorSource]) -> None:
        first = parts[0]
        if any(part.dtype != first.dtype or part.shape[1:] != first.shape[1:] for part in parts):
            found = ", ".join(f"{part.dtype}{list(part.shape)}" for part in parts)
            raise ValueError(f"parts of a tensor: {found}, expected one dtype and one row shape")
        self.parts = parts
        self.dtype = first.dtype
        self.shape = (sum(part.shape[0] for part in parts), *first.shape[1:])

    def chunks(self, rows: int) -> Iterator[Array]:
        for part in self.parts:
            yield from part.chunks(rows)


def element_bytes(dtype: np.dtype[Any]) -> int:
    """Return the bytes of an element; a string counts as the pointer and length that it needs at least."""
    return 16 if dtype.kind == "O" else dtype.itemsize


def byte_size(tensor: TensorSource) -> int:
    """Return the bytes of a tensor's elements."""
    return math.prod(tensor.shape) * element_bytes(tensor.dtype)


def rows_per_chunk(tensor: TensorSource, limit: int = CHUNK_BYTES) -> int:
    """Return the number of rows that fit into `limit` bytes, at least one."""
    row = math.prod(tensor.shape[1:]) * element_bytes(tensor.dtype)
    return max(1, limit // max(1, row))


def rows_between(tensor: TensorSource, begin: int, end: int) -> Array:
    """Return rows [end - begin, ...] of a tensor, without reading earlier rows if it supports that (`between`)."""
    between: Callable[[int, int], Array] | None = getattr(tensor, "between", None)
    if between is not None:
        return between(begin, end)
    found = np.empty((end - begin, *tensor.shape[1:]), tensor.dtype)
    position = 0
    for chunk in tensor.chunks(rows_per_chunk(tensor)) if end > begin else ():
        low, high = max(begin, position), min(end, position + len(chunk))
        if low < high:
            found[low - begin : high - begin] = chunk[low - position : high - position]
        position += len(chunk)
        if position >= end:
            break
    return found


def split_rows(arrays: Iterable[Array], rows: int) -> Iterator[Array]:
    """Yield the arrays in pieces of at most `rows` rows along the first axis, without empty ones."""
    for array in arrays:
        for begin in range(0, len(array), rows):
            yield array[begin : begin + rows]
