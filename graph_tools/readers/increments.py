# SPDX-License-Identifier: Apache-2.0
"""Read what training systems write between two full saves: DeepRec's incremental checkpoints, TFPlus's delta exports.

Both are TF checkpoints that belong to an earlier full save. Dense variables are in them as a whole.

- DeepRec has the keys that have changed since the last full save as `<name>-sparse_incr_keys`, and their rows as
  `<name>-sparse_incr_values`. If `<name>` is a variable of which rows are gathered, the keys are row numbers. Keys that
  were evicted are not listed.
- TFPlus has the keys that have changed as `<name>-keys` and `<name>-values`, those that are gone as
  `<name>-delete_keys` and `<name>-blacklist`, and `<name>-need_full_import` is false.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.bundle import BundleReader
from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.readers.families.saved import KEYS, VALUES, read_part, tensor
from graph_tools.readers.saved_model import is_saved_model
from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.tables.blocks import as_int64
from graph_tools.tensors import Array, ArrayTensor, TensorSource

_INCR_KEYS, _INCR_VALUES = "-sparse_incr_keys", "-sparse_incr_values"
_FULL = "-need_full_import"
_GONE = ("-delete_keys", "-blacklist")


def find_increment(place: Path) -> BundleReader | None:
    """Return the tensors of an increment; None if a path is something else.

    Parameters
    ----------
    place : Path
        Prefix of a checkpoint, or the folder of a SavedModel.
    """
    prefix = place / "variables" / "variables" if is_saved_model(place) else place
    if not Path(f"{prefix}.index").is_file():
        return None
    bundle = BundleReader(prefix)
    names = bundle.names()
    if any(name.endswith(_INCR_KEYS) for name in names):
        return bundle
    partial = [name for name in names if name.endswith(_FULL) and not tensor(bundle, name).read().all()]
    return bundle if partial else None


def read_increment(model: Model, bundle: BundleReader) -> Delta:
    """Return the changes of an increment in terms of the model that has the full save.

    The keys and rows of one table are held in memory, since they must be sorted.

    Raises
    ------
    UnreadableError
        A tensor is missing or does not fit the others.
    ConversionError
        A table of TFPlus is saved as a whole in the increment.
    """
    tables = []
    for table in model.sparse_tables.values():
        stems = [name.removesuffix(KEYS) for name in model.tensor_names.get(table.name, ()) if name.endswith(KEYS)]
        read = _deeprec if any(stem + _INCR_KEYS in bundle for stem in stems) else _tfplus
        tables.append(read(table, stems, bundle))
    variables: dict[str, TensorSource] = {}
    for handle, before in model.variables.items():
        for name in model.tensor_names.get(handle, ()):
            if name in bundle:
                found = tensor(bundle, name)
                if before.dtype == np.float32:
                    variables[handle] = found
            elif name + _INCR_KEYS in bundle:
                dim = math.prod(before.shape[1:])
                keys, rows = _together([_saved(bundle, name)], np.dtype(np.int64), dim)
                tables.append(TableDelta(handle, "row_number", dim, *_tensors(keys, rows), no_keys("row_number")))
    return Delta(tuple(table for table in tables if not table.empty), variables)


def _deeprec(table: SparseTable, stems: list[str], bundle: BundleReader) -> TableDelta:
    keys, rows = _together([_saved(bundle, stem) for stem in stems], table.key_dtype, table.dim)
    return _delta(table, keys, rows, keys[:0])


def _saved(bundle: BundleReader, stem: str) -> tuple[Array, Array]:
    part = read_part(bundle, stem + _INCR_KEYS, stem + _INCR_VALUES)
    return part.keys.read(), part.rows.read()


def _tfplus(table: SparseTable, stems: list[str], bundle: BundleReader) -> TableDelta:
    parts, gone = [], [np.empty(0, table.key_dtype)]
    for stem in stems:
        if tensor(bundle, stem + _FULL).read().all():
            raise ConversionError(
                f"{bundle.index}: table '{stem}' as a whole, expected only its changes, as for others"
            )
        part = read_part(bundle, stem + KEYS, stem + VALUES)
        parts.append((part.keys.read(), part.rows.read()))
        gone += [tensor(bundle, stem + suffix).read().reshape(-1) for suffix in _GONE if stem + suffix in bundle]
    keys, rows = _together(parts, table.key_dtype, table.dim)
    deleted = np.unique(as_int64(np.concatenate([part for part in gone if len(part)] or gone[:1])))
    stays = ~_contained(keys, deleted)
    return _delta(table, keys[stays], rows[stays], deleted)


def _contained(keys: Array, others: Array) -> Array:
    """Return which keys [n] are among others, which ascend."""
    if not len(others):
        return np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(others, keys), len(others) - 1)
    return np.asarray(others[place] == keys, bool)


def _together(parts: Iterable[tuple[Array, Array]], key_dtype: np.dtype[Any], dim: int) -> tuple[Array, Array]:
    """Return the keys [n] of several parts in ascending order, and their rows [n, dim] float32."""
    keys, rows = [np.empty(0, key_dtype)], [np.empty((0, dim), np.float32)]
    for part_keys, part_rows in parts:
        if part_keys.dtype != key_dtype or part_rows.size != len(part_keys) * dim or part_rows.dtype != np.float32:
            found = f"keys {part_keys.dtype}{list(part_keys.shape)}, rows {part_rows.dtype}{list(part_rows.shape)}"
            raise UnreadableError(f"increment: {found}, expected {key_dtype} keys and float32 rows of {dim}")
        keys.append(part_keys)
        rows.append(part_rows.reshape(-1, dim))
    together = as_int64(np.concatenate(keys))
    order = np.argsort(together, kind="stable")
    ordered = together[order]
    twice = np.flatnonzero(np.asarray(ordered[1:] == ordered[:-1], bool))
    if len(twice):
        raise UnreadableError(f"increment: key {ordered[twice].tolist()[0]!r} twice, expected each key once")
    return ordered, np.concatenate(rows)[order]


def _delta(table: SparseTable, keys: Array, rows: Array, deleted: Array) -> TableDelta:
    kind = "string" if table.key_dtype.kind == "O" else "int64"
    return TableDelta(table.name, kind, table.dim, *_tensors(keys, rows), ArrayTensor(deleted))


def _tensors(keys: Array, rows: Array) -> tuple[TensorSource, TensorSource]:
    return ArrayTensor(keys), ArrayTensor(rows)
