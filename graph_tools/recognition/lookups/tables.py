# SPDX-License-Identifier: Apache-2.0
"""Which rows a lookup reads, in terms of the graph: variables, and what leads from keys to their rows."""

from __future__ import annotations

from dataclasses import dataclass

IDENTITY = "identity"
"""Name that rows have which are those of an identity matrix, and no variable's."""


@dataclass(frozen=True)
class StoredRows:
    """Rows as a variable or constant holds them.

    Attributes
    ----------
    values : str
        Handle of a variable, or name of a Const: rows, or codes where `scale_bias` is given.
    scale_bias : str or None
        Handle of the variable [n, 2] fp16 of scales and biases.
    row_type : str
        fp32, bf16, fp16, int8 or int4.
    count : int
        Rows of the variable.
    row_shape : tuple of int
        Shape of a row, flat [dim] in the table.
    """

    values: str
    scale_bias: str | None
    row_type: str
    count: int
    row_shape: tuple[int, ...]


@dataclass(frozen=True)
class DefaultRows:
    """Rows of the variable for keys that are absent: `first + ((k + shift) mod count)`, k being the key.

    Attributes
    ----------
    first, count, shift : int
    """

    first: int
    count: int = 1
    shift: int = 0


@dataclass(frozen=True)
class HashIndex:
    """Row numbers that a native hash table holds, with what is done to them before the rows are read.

    Attributes
    ----------
    handle : str
    strings : bool
    changes : tuple of (op, number)
        `add` or `min`, in the order of application.
    """

    handle: str
    strings: bool
    changes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class ArrayIndex:
    """Row numbers by key, from `low` on, as a variable holds them.

    Attributes
    ----------
    values : str
        Handle of integers [span] or more.
    span : int
        Keys.
    low : int
        The first key.
    absent : int or None
        Number that stands for a key that is absent.
    """

    values: str
    span: int
    low: int = 0
    absent: int | None = None


Index = HashIndex | ArrayIndex


@dataclass(frozen=True)
class TableSource:
    """A table to be: which rows, which keys, and what absent keys are given.

    Attributes
    ----------
    rows : StoredRows
    dim : int
        Elements of a row.
    span : int
        Rows from the beginning of the variable that keys of a direct table lead to.
    index : HashIndex or ArrayIndex or None
        None: keys are row numbers.
    absent : "error", "zeros" or DefaultRows
    """

    rows: StoredRows
    dim: int
    span: int
    index: Index | None = None
    absent: str | DefaultRows = "error"
