# SPDX-License-Identifier: Apache-2.0
"""Lay the changes of a timeline over a model as it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.store.delta import Delta, TableDelta
from graph_tools.store.merging import with_rows
from graph_tools.tables.absent_keys import apply_absent_keys, is_set
from graph_tools.tables.bits import Bits
from graph_tools.tables.blocks import as_int64
from graph_tools.tensors import Array, StreamTensor, TensorSource, rows_per_chunk

_CHUNK_BYTES = 4 << 20


def overlay(model: Model, delta: Delta, absent_key: dict[str, str] | None = None) -> None:
    """Change the weights of a model; they are computed when they are read.

    Parameters
    ----------
    model : Model
        As `read_model` returned it.
    absent_key : dict of str to str, optional
        The values for absent keys with which it was read.

    Raises
    ------
    ConversionError
        The model does not have a table or variable, or has another shape or kind of keys.
    """
    absent = dict(absent_key or {})
    for name, tensor in delta.variables.items():
        before = _variable(model, name)
        if tuple(before.shape) != tuple(tensor.shape):
            raise ConversionError(f"variable '{name}': {list(tensor.shape)} in the timeline, expected {before.shape}")
        model.variables[name] = _converted(tensor, before.dtype)
    for table in delta.tables:
        if table.key_kind == "row_number":
            model.variables[table.name] = with_rows(table.name, _variable(model, table.name), table)
            continue
        if table.name not in model.sparse_tables:
            raise ConversionError(f"table '{table.name}': not in the model, expected a table of it")
        model.sparse_tables[table.name] = _overlaid(model.sparse_tables[table.name], table, is_set(absent, table.name))
    # Such a value may be the row of a key.
    apply_absent_keys(model, absent)
    model.changed = True


def _variable(model: Model, name: str) -> TensorSource:
    found = model.variables.get(name)
    if found is None:
        raise ConversionError(f"variable '{name}': not in the model, expected a variable of it")
    if found.dtype.kind not in "fV":
        raise ConversionError(f"variable '{name}': {found.dtype} in the model, expected a float type")
    return found


def _converted(tensor: TensorSource, dtype: np.dtype[np.generic]) -> TensorSource:
    if tensor.dtype == dtype:
        return tensor

    def make(rows: int) -> Iterator[Array]:
        for block in tensor.chunks(rows):
            yield block.astype(dtype)

    return StreamTensor(dtype, tensor.shape, make)


def _overlaid(table: SparseTable, delta: TableDelta, own_absent: bool) -> SparseTable:
    """Return a table without the changed and deleted keys in its parts, and with the changed ones in a new part."""
    strings = table.key_dtype.kind == "O"
    if (delta.key_kind, delta.dim) != ("string" if strings else "int64", table.dim):
        found = f"keys of kind {delta.key_kind} and dim {delta.dim} in the timeline"
        expected = f"{'string' if strings else 'int64'} and dim {table.dim}"
        raise ConversionError(f"table '{table.name}': {found}, expected {expected}")
    touched = _contains(delta)
    parts = [_kept(part, touched) for part in table.parts]
    if delta.changed.shape[0]:
        parts.append(Part(_as_exported(delta.changed, table.key_dtype), _converted(delta.rows, table.dtype)))
    absent = table.absent if own_absent else _absent(table, delta)
    return replace(table, parts=parts, absent=absent)


def _contains(delta: TableDelta) -> Callable[[Array], Array]:
    """Return a function that tells which keys [n] are changed or deleted."""
    if delta.key_kind == "string":
        known = {key for keys in (delta.changed, delta.deleted) for block in keys.chunks(1 << 16) for key in block}
        return lambda keys: np.fromiter(map(known.__contains__, keys.tolist()), bool, len(keys))
    ordered = [keys.read() for keys in (delta.changed, delta.deleted) if keys.shape[0]]

    def found(keys: Array) -> Array:
        inside = np.zeros(len(keys), bool)
        for known in ordered:
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            inside |= known[place] == keys
        return inside

    return found


def _kept(part: Part, touched: Callable[[Array], Array]) -> Part:
    """Return a part without touched keys, and without those that the training system does not serve."""
    kept, begin = Bits(part.keys.shape[0]), 0
    ignored = None if part.ignored is None or not len(part.ignored) else np.unique(as_int64(part.ignored))
    for block in part.keys.chunks(rows_per_chunk(part.keys, _CHUNK_BYTES)):
        keys = as_int64(block)
        mask = ~touched(keys)
        if ignored is not None:
            place = np.minimum(np.searchsorted(ignored, keys), len(ignored) - 1)
            mask &= (ignored[place] != keys).astype(bool)
        kept.set(begin, mask)
        begin += len(block)
    if kept.all and ignored is None:
        return part
    return Part(
        _filtered(part.keys, kept),
        _filtered(part.rows, kept),
        None if part.frequencies is None else _filtered(part.frequencies, kept),
    )


def _filtered(tensor: TensorSource, kept: Bits) -> TensorSource:
    def make(rows: int) -> Iterator[Array]:
        begin = 0
        for block in tensor.chunks(rows):
            mask = kept.get(begin, begin + len(block))
            begin += len(block)
            if mask.any():
                yield block[mask]

    return StreamTensor(tensor.dtype, (kept.count, *tensor.shape[1:]), make)


def _as_exported(keys: TensorSource, dtype: np.dtype[np.generic]) -> TensorSource:
    """Return keys of the type that the table has: int32 by value, uint64 by bits."""
    if keys.dtype == dtype:
        return keys

    def make(rows: int) -> Iterator[Array]:
        for block in keys.chunks(rows):
            yield block.view(dtype) if dtype == np.uint64 else block.astype(dtype)

    return StreamTensor(dtype, keys.shape, make)


def _absent(table: SparseTable, delta: TableDelta) -> Absent:
    if not len(delta.default_numbers):
        return table.absent
    assert delta.default_rows is not None
    count = 0 if table.absent.rows is None else len(table.absent.rows)
    last = int(delta.default_numbers[-1])
    if table.absent.rows is None or last >= count:
        raise ConversionError(f"table '{table.name}': default row {last}, expected one of {count} default rows")
    rows = table.absent.rows.copy()
    rows[delta.default_numbers] = delta.default_rows.astype(rows.dtype)
    return Absent(rows, table.absent.source)
