# SPDX-License-Identifier: Apache-2.0
"""A sparse table as its training system exported it: keys, rows, and the value of an absent key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from graph_tools.tensors import Array, StreamTensor, TensorSource


@dataclass(frozen=True)
class Absent:
    """The result of a lookup for a key that is not in the table.

    Attributes
    ----------
    rows : ndarray [count, dim] or None
        None: zeros. One row: that row. Several: row `key mod count`, where `mod` is Python's `%`.
    source : str
        The origin of this value, as text for the report: an attribute of the graph, a tensor of the checkpoint, or the
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
        Keys that the system itself would not serve, since they are blacklisted or filtered by admission. A lookup
        returns the absent value for them.
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
        The name that the user knows: that of the variable in the training program.
    family : str
        `deeprec`, `tfplus`, `tfra`, `monolith`, `tensornet`, `hps`, or `tensorflow`.
    key_dtype : numpy dtype
    dim : int
        Length of a row.
    dtype : numpy dtype
        The type of a row's elements.
    parts : list of Part
        A partitioned table has several parts; no key is in two of them.
    absent : Absent
    dropped_tensors : list of (tensor name, bytes, reason)
        Tensors of the checkpoint for this table that serving does not need: slots, versions, filtered keys.
    misplaced : int
        Number of keys that were dropped from a part because lookups search for them in another part.
    keeps_order : bool
        Rows must be stored in the order of the parts, so keys are hashed.
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
    keeps_order: bool = False

    @property
    def count(self) -> int:
        """Return the number of keys."""
        return sum(part.keys.shape[0] for part in self.parts)

    @property
    def source_bytes(self) -> int:
        """Return the size of keys and rows as exported [bytes]."""
        key = 16 if self.key_dtype.kind == "O" else self.key_dtype.itemsize
        return self.count * (key + self.dim * self.dtype.itemsize)


class PlannedTensor(StreamTensor):
    """Rows, or their representation, as a plan stores them; this marks a tensor that must not be planned again."""
