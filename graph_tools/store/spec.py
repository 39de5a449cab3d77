# SPDX-License-Identifier: Apache-2.0
"""Describe the contents of an embedding table's file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from graph_tools.live import TableOrigin
from graph_tools.store.layout import ABSENT_KEYS, ROW_TYPES
from graph_tools.store.row_runs import NarrowRows, rows_problem
from graph_tools.store.row_sizes import row_size
from graph_tools.tensors import Array, BaseTensor, TensorSource


class EncodedRows(BaseTensor):
    """Rows [n, row_size] uint8 that are already encoded, in a file or by `cut`.

    Parameters
    ----------
    bytes_of_rows : TensorSource [n, row_size] uint8
    """

    def __init__(self, bytes_of_rows: TensorSource) -> None:
        self.source = bytes_of_rows
        self.dtype, self.shape = bytes_of_rows.dtype, bytes_of_rows.shape

    def chunks(self, rows: int) -> Iterator[Array]:
        return self.source.chunks(rows)


class QuantisedRows(EncodedRows):
    """The bytes [n, 4 + width] of rows that are stored as two tensors, as `cut` does: codes, and scale with bias.

    Parameters
    ----------
    codes : TensorSource [n, width] uint8
    scale_bias : TensorSource [n, 2] float16
    """

    def __init__(self, codes: TensorSource, scale_bias: TensorSource) -> None:
        self.codes, self.scale_bias = codes, scale_bias
        self.dtype, self.shape = np.dtype(np.uint8), (codes.shape[0], 4 + codes.shape[1])

    def chunks(self, rows: int) -> Iterator[Array]:
        pairs = _Pieces(self.scale_bias, rows)
        for codes in self.codes.chunks(rows):
            pair = np.ascontiguousarray(pairs.take(len(codes)), np.float16).view(np.uint8)
            yield np.concatenate([pair, codes], axis=1)


class _Pieces:
    """Returns the rows of a tensor in pieces of the requested lengths."""

    def __init__(self, tensor: TensorSource, rows: int) -> None:
        self._chunks = tensor.chunks(rows)
        self._left = np.empty((0, *tensor.shape[1:]), tensor.dtype)

    def take(self, count: int) -> Array:
        while len(self._left) < count:
            self._left = np.concatenate([self._left, next(self._chunks)])
        taken, self._left = self._left[:count], self._left[count:]
        return taken


@dataclass(frozen=True)
class TableSpec:
    """The table of a `RecEmbeddingTable` node.

    Attributes
    ----------
    dim : int
        Elements of a row.
    rows : TensorSource [rows, dim] float, or EncodedRows [rows, row_size] of `row_type`
    row_type : str
        How they are stored: `fp32`, `bf16`, `fp16`, `int8` or `int4`.
    keys : TensorSource [keys] int64 or object (bytes), or None
        None: the key is the number of the row. Key i leads to row i, or row `row_numbers[i]`.
    row_numbers : TensorSource [keys] integer, or None
        For int64 keys only; several keys may lead to one row.
    default_rows : TensorSource [n, dim], or EncodedRows
        For `absent_key` `default`: row `key mod n` of these.
    absent_key : str
        `zeros`, `error` or `default`.
    origin : TableOrigin or None
        Where the rows come from, if changes of the source are followed.
    file : Path or None
        A file with exactly these contents, named after its SHA-256; it is linked or copied instead of written again.
    narrow : tuple of NarrowRows
        Rows of which only the first elements are stored, since the others are zeros.
    """

    dim: int
    rows: TensorSource
    row_type: str = "fp32"
    keys: TensorSource | None = None
    row_numbers: TensorSource | None = None
    default_rows: TensorSource | None = None
    absent_key: str = "zeros"
    origin: TableOrigin | None = field(default=None, compare=False)
    file: Path | None = field(default=None, compare=False)
    narrow: tuple[NarrowRows, ...] = ()

    @property
    def index_kind(self) -> str:
        """Kind of the index: `direct`, `int64` or `string`."""
        if self.keys is None:
            return "direct"
        return "string" if self.keys.dtype.kind == "O" else "int64"

    def problem(self) -> str | None:
        """Return why the table is not valid, as `found, expected what`, or None."""
        if self.row_type not in ROW_TYPES:
            return f"rows of type '{self.row_type}', expected one of {', '.join(ROW_TYPES)}"
        if self.absent_key not in ABSENT_KEYS or (self.absent_key == "default") != (self.default_rows is not None):
            given = "no default rows" if self.default_rows is None else "default rows"
            return f"absent keys '{self.absent_key}' and {given}, expected zeros, error, or default with rows"
        for name, rows in (("rows", self.rows), ("default rows", self.default_rows)):
            if rows is None:
                continue
            encoded = isinstance(rows, EncodedRows)
            width = row_size(self.row_type, self.dim) if encoded else self.dim
            kinds = "u" if encoded else "fV"  # V: ml_dtypes' bfloat16
            if self.dim < 1 or len(rows.shape) != 2 or rows.shape[1] != width or rows.dtype.kind not in kinds:
                found = f"{name} {rows.dtype}{list(rows.shape)}"
                return f"{found}, expected {'bytes' if encoded else 'numbers'} [n, {width}]"
        if self.default_rows is not None and not self.default_rows.shape[0]:
            return "0 default rows, expected at least one"
        if (problem := rows_problem(self.rows.shape[0], self.dim, self.narrow)) is not None:
            return problem
        return self._key_problem()

    def _key_problem(self) -> str | None:
        if self.keys is None:
            return None if self.row_numbers is None else "row numbers without keys, expected both"
        numbers = self.row_numbers
        if (self.keys.dtype != np.int64 and self.keys.dtype.kind != "O") or len(self.keys.shape) != 1:
            return f"keys {self.keys.dtype}{list(self.keys.shape)}, expected int64 or strings [n]"
        if numbers is not None and (numbers.shape != self.keys.shape or self.index_kind == "string"):
            return f"row numbers {list(numbers.shape)}, expected {list(self.keys.shape)} for int64 keys"
        if numbers is None and self.keys.shape[0] != self.rows.shape[0]:
            return f"{self.keys.shape[0]} keys, expected one for each of {self.rows.shape[0]} rows"
        return None
