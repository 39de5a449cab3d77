# SPDX-License-Identifier: Apache-2.0
"""Where the rows of tables come from, so that changes of single rows can be followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from graph_tools.live.tensors import LiveTensor, plain
from graph_tools.tensors import Array, BaseTensor, TensorSource

KeyKind = Literal["row_number", "int64", "string"]


@dataclass(frozen=True)
class RowSource:
    """The table or variable of the source model from which rows come.

    Attributes
    ----------
    name : str
    key_kind : str
        By what a delta names a row: `row_number` for a variable, else the type of the table's keys.
    rows : int
        Number of rows of a variable; 0 for a table.
    first_default : int
        The row of the tensor that is the source's first row for absent keys; -1: the tensor does not have these.
    defaults : int
        Number of the source's rows for absent keys.
    """

    name: str
    key_kind: KeyKind
    rows: int = 0
    first_default: int = -1
    defaults: int = 0


@dataclass(frozen=True)
class TableOrigin:
    """The source of the rows of a table file.

    Attributes
    ----------
    source : RowSource
    first_row : int
        Row r of the file is row `first_row + r` of a source variable, unless `rows` is given.
    rows : ndarray [rows] int64 or None
        The row of the source variable for each row of the file.
    default_rows : tuple of int
        For each default row of the file: the row of the source variable, or the number of the source's default row; -1
        if it never changes.
    """

    source: RowSource
    first_row: int = 0
    rows: Array | None = None
    default_rows: tuple[int, ...] = ()


class LiveRows(BaseTensor):
    """Rows in the form in which a table stores them, with their source."""

    def __init__(self, tensor: TensorSource, source: RowSource) -> None:
        self.tensor, self.source = tensor, source
        self.dtype, self.shape = tensor.dtype, tensor.shape

    def chunks(self, rows: int) -> Iterator[Array]:
        return self.tensor.chunks(rows)


def row_source(tensor: TensorSource | None) -> RowSource | None:
    """Return the source of the rows of a tensor; None if they never change."""
    if isinstance(tensor, LiveRows):
        return tensor.source
    if isinstance(tensor, LiveTensor):
        # Rows that were computed from a variable raise `UntracedError`, since no delta has them.
        plain(tensor)
        return RowSource(tensor.source or "", "row_number", tensor.shape[0])
    return None
