# SPDX-License-Identifier: Apache-2.0
"""The rows that a lookup reads, in terms of the graph: variables, and the indexes from keys to rows."""

from __future__ import annotations

from dataclasses import dataclass

IDENTITY = "identity"
"""The name of rows of an identity matrix, which no variable contains."""


@dataclass(frozen=True)
class StoredRows:
    """Rows as a variable or constant stores them.

    Attributes
    ----------
    values : str
        Handle of a variable, or name of a Const, with rows, or with codes if `scale_bias` is given.
    scale_bias : str or None
        Handle of the variable [n, 2] fp16 of scales and biases.
    row_type : str
        fp32, bf16, fp16, int8 or int4.
    count : int
        Number of rows of the variable.
    row_shape : tuple of int
        Shape of a row, which is flat [dim] in the table.
    """

    values: str
    scale_bias: str | None
    row_type: str
    count: int
    row_shape: tuple[int, ...]


@dataclass(frozen=True)
class DefaultRows:
    """Rows of the variable for absent keys: `first + ((k + shift) mod count)`, where k is the key.

    Attributes
    ----------
    first, count, shift : int
    """

    first: int
    count: int = 1
    shift: int = 0


@dataclass(frozen=True)
class HashIndex:
    """Row numbers in a native hash table, with the changes to them before the rows are read.

    Attributes
    ----------
    handle : str
    strings : bool
    changes : tuple of (op, number)
        The changes, `add` or `min`, in the order of application.
    """

    handle: str
    strings: bool
    changes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class ArrayIndex:
    """Row numbers by key, starting at `low`, as a variable stores them.

    Attributes
    ----------
    values : str
        Handle of integers [span] or more.
    span : int
        Number of keys.
    low : int
        The first key.
    absent : int or None
        The number that marks an absent key.
    """

    values: str
    span: int
    low: int = 0
    absent: int | None = None


Index = HashIndex | ArrayIndex


@dataclass(frozen=True)
class TableSource:
    """A new table: its rows, its keys, and the rows of absent keys.

    Attributes
    ----------
    rows : StoredRows
    dim : int
        Number of elements of a row.
    span : int
        Number of rows, from the beginning of the variable, to which keys of a direct table lead.
    index : HashIndex or ArrayIndex or None
        None: keys are row numbers.
    absent : "error", "zeros" or DefaultRows
    """

    rows: StoredRows
    dim: int
    span: int
    index: Index | None = None
    absent: str | DefaultRows = "error"
