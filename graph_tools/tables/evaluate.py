# SPDX-License-Identifier: Apache-2.0
"""Look up keys in a table as its training system would, in NumPy: a conversion must preserve this result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_tools.model.tables import Part, SparseTable
from graph_tools.tensors import CHUNK_BYTES, Array, TensorSource, rows_per_chunk


def evaluate_lookup(table: SparseTable, keys: Array, default: Array | None = None) -> Array:
    """Return the rows of keys, in one pass over the table, with only one chunk of it in memory.

    Parameters
    ----------
    table : SparseTable
    keys : ndarray [...]
    default : ndarray [dim], [..., dim] or None
        Value of absent keys instead of the table's own absent value: one row, or one for each key.

    Returns
    -------
    ndarray [..., dim], of the table's dtype
    """
    flat = _as_keys(keys, table).reshape(-1)
    rows, found = find_rows(table, flat)
    gone = ~found
    if gone.any():
        if default is None:
            rows[gone] = table.absent.lookup(flat[gone], table.dim, table.dtype)
        elif default.size == table.dim:
            rows[gone] = default.reshape(table.dim)
        else:
            rows[gone] = default.reshape(len(flat), table.dim)[gone]
    return rows.reshape(*keys.shape, table.dim)


def find_rows(table: SparseTable, keys: Array) -> tuple[Array, Array]:
    """Return the rows [n, dim] of keys [n], zeros for absent keys, and whether each key was found [n] bool.

    Keys that the training system itself would not serve count as absent.
    """
    asked, back = _unique(_as_keys(keys, table))
    rows = np.zeros((len(asked), table.dim), table.dtype)
    found = np.zeros(len(asked), bool)
    if len(asked):
        for part in table.parts:
            _find_in(part, asked, rows, found)
    return rows[back], found[back]


def paired_chunks(first: TensorSource, second: TensorSource, rows: int) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of two tensors of the same length side by side, even if their own blocks differ in size."""
    left, right = first.chunks(rows), second.chunks(rows)
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        count = min(len(a), len(b))
        if count:
            yield a[:count], b[:count]
        a = a[count:] if len(a) > count else next(left, None)
        b = b[count:] if len(b) > count else next(right, None)


def _find_in(part: Part, asked: Array, rows: Array, found: Array) -> None:
    ignored = _isin(asked, part.ignored) if part.ignored is not None else None
    for keys, values in paired_chunks(part.keys, part.rows, rows_per_chunk(part.rows, CHUNK_BYTES // 4)):
        at = np.minimum(np.searchsorted(asked, keys), len(asked) - 1)
        hit = asked[at] == keys
        if ignored is not None:
            hit &= ~ignored[at]
        if hit.any():
            rows[at[hit]] = values[hit]
            found[at[hit]] = True


def _as_keys(keys: Array, table: SparseTable) -> Array:
    keys = np.asarray(keys)
    return keys if keys.dtype == table.key_dtype else keys.astype(table.key_dtype)


def _unique(keys: Array) -> tuple[Array, Array]:
    """Return the distinct keys in order and, for each key, its index among them."""
    asked, back = np.unique(keys, return_inverse=True)
    return asked, back.reshape(-1)


def _isin(keys: Array, among: Array) -> Array:
    if keys.dtype == object:
        known = set(among.tolist())
        return np.fromiter((key in known for key in keys.tolist()), bool, len(keys))
    return np.isin(keys, among)
