# SPDX-License-Identifier: Apache-2.0
"""Find the table that `compress` replaces, read all of it, and describe what replaces it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graph_tools.errors import ConversionError, UsageError
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.report.compress import CompressedTable
from graph_tools.tables.code_fit import Fit
from graph_tools.tables.mixed_dims import MixedRows, RowWidth
from graph_tools.tables.row_codes import RowCode
from graph_tools.tensors import Array

# Copies of the table's rows that a fit needs.
_COPIES = 5


def find_table(model: Model, name: str) -> tuple[str, SparseTable] | None:
    """Return the handle of a table with keys, and the table; None if the model looks up none of this name."""
    for handle, table in model.sparse_tables.items():
        if name in (handle, table.name) and lookups(model.graph, handle):
            return handle, table
    return None


def names_table(name: str, handle: str) -> bool:
    """Return whether a user's name for a table is that of a variable, or of the layer that has it."""
    return handle == name or handle.startswith(f"{name}/")


def _frequencies(table: SparseTable) -> Array | None:
    """Return how often training met each key, [n] float32, and at least once; None if the export does not say."""
    found = [part.frequencies.read() for part in table.parts if part.frequencies is not None]
    if len(found) < len(table.parts) or not found:
        return None
    counts: Array = np.maximum(np.concatenate(found).astype(np.float32), 1.0)
    return counts if len(counts) == table.count else None


def read_table(table: SparseTable, memory_limit: int) -> tuple[Array, Array, Array | None]:
    """Return the keys [n], the rows [n, dim] float32, and how often training met each key [n] float32, if it is known.

    Raises
    ------
    ConversionError
        A fit would need more memory than `memory_limit`, or a row is not finite.
    """
    check_memory(table.name, (table.count, table.dim), memory_limit)
    keys = np.concatenate([part.keys.read() for part in table.parts])
    rows = np.concatenate([np.asarray(part.rows.read(), np.float32) for part in table.parts])
    check_finite(table.name, rows)
    return keys, rows, _frequencies(table)


def check_memory(name: str, shape: tuple[int, ...], memory_limit: int) -> None:
    """Raise `ConversionError` if a fit to rows of this shape would need more memory than `memory_limit`."""
    needed = _COPIES * math.prod(shape) * 4
    if needed > memory_limit:
        raise ConversionError(f"table '{name}': a fit needs {needed} bytes, expected --memory-limit to permit them")


def check_finite(name: str, rows: Array) -> None:
    """Raise `ConversionError` for a row that is not finite."""
    if not np.isfinite(rows).all():
        raise ConversionError(f"table '{name}': has rows that are not finite, expected finite ones")


def check_row_count(name: str, code: RowCode, keys: int) -> None:
    """Raise `UsageError` for a code that has as many rows as the table."""
    if sum(code.sizes) >= keys:
        raise UsageError(f"table '{name}': {sum(code.sizes)} rows of the code for {keys} keys, expected fewer")


def check_dim(name: str, widths: Sequence[RowWidth], dim: int) -> None:
    """Raise `UsageError` for rows that would be wider than those of the table."""
    if widths[0].dim > dim:
        raise UsageError(f"--dims {widths[0].dim}: table '{name}' has rows of {dim} elements, expected no more")


def code_report(
    name: str, shape: tuple[int, ...], source_bytes: int, code: RowCode, fitted: Fit, by_frequency: bool = False
) -> CompressedTable:
    """Describe a table [keys, dim] whose rows are sums of fitted ones."""
    return CompressedTable(
        name=name,
        keys=shape[0],
        dim=shape[1],
        bytes_before=source_bytes,
        bytes=fitted.rows.nbytes,
        rows=len(fitted.rows),
        method=code.method,
        parts=code.sizes,
        error=fitted.error,
        weighed_by="frequency" if by_frequency else "nothing",
    )


def dims_report(
    name: str,
    shape: tuple[int, ...],
    source_bytes: int,
    key_bytes: int,
    widths: Sequence[RowWidth],
    mixed: MixedRows,
    by_frequency: bool = False,
) -> CompressedTable:
    """Describe a table [keys, dim] whose rows have different widths, and keys, or their places, so many bytes."""
    ends = np.cumsum([shape[0] if each.rows is None else each.rows for each in widths]).clip(max=shape[0])
    return CompressedTable(
        name=name,
        keys=shape[0],
        dim=shape[1],
        bytes_before=source_bytes,
        bytes=mixed.bytes + key_bytes,
        rows=shape[0],
        method="dims",
        parts=np.diff(ends, prepend=0).tolist(),
        dims=[each.dim for each in widths],
        error=mixed.error,
        weighed_by="frequency" if by_frequency else "norm",
    )
