# SPDX-License-Identifier: Apache-2.0
"""Describe the changes of an epoch: rows of tables, variables, and what the trainer had read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from graph_tools.tensors import Array, ArrayTensor, BaseTensor, TensorSource


class StringKeys(BaseTensor):
    """Strings in one array of bytes.

    Parameters
    ----------
    ends : ndarray [n + 1] uint64
        Where each string begins; the last element is the end.
    data : ndarray [bytes] uint8
    """

    def __init__(self, ends: Array, data: Array) -> None:
        self.ends, self.data = ends, data
        self.dtype, self.shape = np.dtype(object), (max(0, len(ends) - 1),)

    def chunks(self, rows: int) -> Iterator[Array]:
        for begin in range(0, self.shape[0], rows):
            yield self.between(begin, min(begin + rows, self.shape[0]))

    def between(self, begin: int, end: int) -> Array:
        ends = self.ends[begin : end + 1].astype(np.int64).tolist()
        raw = self.data[ends[0] : ends[-1]].tobytes()
        block = np.empty(end - begin, object)
        block[:] = [raw[a - ends[0] : b - ends[0]] for a, b in pairwise(ends)]
        return block


def no_keys(key_kind: str) -> ArrayTensor:
    """Return an empty array of keys."""
    return ArrayTensor(np.empty(0, object if key_kind == "string" else np.int64))


@dataclass(frozen=True)
class TableDelta:
    """The changes of a table.

    Attributes
    ----------
    name : str
        The table of the source model.
    key_kind : str
        `row_number`, `int64` or `string`.
    dim : int
    changed : TensorSource [n] int64 or object (bytes)
        Ascending keys whose rows are new or have changed.
    rows : TensorSource [n, dim] float32
    deleted : TensorSource [m] int64 or object (bytes)
        Ascending keys that are no longer in the table.
    default_numbers : ndarray [d] uint32
        Ascending numbers of default rows that have changed.
    default_rows : ndarray [d, dim] float32
    """

    name: str
    key_kind: str
    dim: int
    changed: TensorSource
    rows: TensorSource
    deleted: TensorSource
    default_numbers: Array = field(default_factory=lambda: np.empty(0, np.uint32))
    default_rows: Array | None = None

    @property
    def empty(self) -> bool:
        """Return whether nothing has changed."""
        return not (self.changed.shape[0] or self.deleted.shape[0] or len(self.default_numbers))


@dataclass(frozen=True)
class Delta:
    """The changes of one epoch, or of several.

    Attributes
    ----------
    tables : tuple of TableDelta
    variables : dict of str to TensorSource float32
        The new values of variables, by their names in the source model.
    streams : dict of str to int
        The position of the next message, by stream.
    chains : tuple of bytes [32]
        If the delta leads over several epochs: the chain hash of each but the last. Empty if they are not known.
    """

    tables: tuple[TableDelta, ...] = ()
    variables: dict[str, TensorSource] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    chains: tuple[bytes, ...] = ()
