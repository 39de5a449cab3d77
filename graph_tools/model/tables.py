# SPDX-License-Identifier: Apache-2.0
"""A sparse table as its training system left it: keys, rows, and what a key that is absent is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from graph_tools.tensors import Array, StreamTensor, TensorSource


@dataclass(frozen=True)
class Absent:
    """What a lookup returns for a key that is not in the table.

    Attributes
    ----------
    rows : ndarray [count, dim] or None
        None: zeros. One row: that row. Several: row `key mod count`, with the sign of the divisor as Python's `%`.
    source : str
        Where this comes from, in words for the report: an attribute of the graph, a tensor of the checkpoint, or the
        documented behavior of the system.
    """

    rows: Array | None
    source: str

    @property
    def kind(self) -> Literal["zero", "row", "modulo"]:
        if self.rows is None or not self.rows.any():
            return "zero"
        return "row" if len(self.rows) == 1 else "modulo"

    def lookup(self, keys: Array, dim: int, dtype: np.dtype[Any]) -> Array:
        """Return the rows [n, dim] for absent keys [n]."""
        if self.rows is None:
            return np.zeros((len(keys), dim), dtype)
        if len(self.rows) == 1:
            return np.repeat(self.rows, len(keys), axis=0).astype(dtype)
        return self.rows[keys.astype(np.int64) % len(self.rows)].astype(dtype)


@dataclass
class Part:
    """A piece of a table: key i has row i.

    Attributes
    ----------
    keys : TensorSource [n] int64, int32, uint64 or object (strings)
    rows : TensorSource [n, dim] float
    frequencies : TensorSource [n] or None
        How often each key was seen.
    ignored : set of keys or None
        Keys that the system itself would not serve: blacklisted or filtered by admission. A lookup gives them the
        absent value.
    """

    keys: TensorSource
    rows: TensorSource
    frequencies: TensorSource | None = None
    ignored: Array | None = None


@dataclass
class SparseTable:
    """A table of rows by key.

    Attributes
    ----------
    name : str
        As the user knows it: the variable's name in the training program.
    family : str
        `deeprec`, `tfplus`, `tfra`, `monolith`, `tensornet`, `hps`, or `tensorflow`.
    key_dtype : numpy dtype
    dim : int
        Length of a row.
    dtype : numpy dtype
        Of a row's elements.
    parts : list of Part
        A partitioned table has several; their keys do not meet.
    absent : Absent
    dropped_tensors : list of (tensor name, bytes, reason)
        What the checkpoint holds for this table and serving does not need: slots, versions, filtered keys.
    misplaced : int
        Keys that are in none of the parts any more: they were in another one than requests for them are sent to.
    """

    name: str
    family: str
    key_dtype: np.dtype[Any]
    dim: int
    dtype: np.dtype[Any]
    parts: list[Part]
    absent: Absent
    dropped_tensors: list[tuple[str, int, str]] = field(default_factory=list)
    misplaced: int = 0

    @property
    def count(self) -> int:
        """Number of keys."""
        return sum(part.keys.shape[0] for part in self.parts)

    @property
    def source_bytes(self) -> int:
        """Bytes of keys and rows as exported."""
        key = 16 if self.key_dtype.kind == "O" else self.key_dtype.itemsize
        return self.count * (key + self.dim * self.dtype.itemsize)


class PlannedTensor(StreamTensor):
    """Rows, or what stands for them, as a plan stores them: no table to be planned again."""
