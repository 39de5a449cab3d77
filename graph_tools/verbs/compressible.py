# SPDX-License-Identifier: Apache-2.0
"""Find the table that `compress` replaces, and read all of it."""

from __future__ import annotations

import numpy as np

from graph_tools.errors import ConversionError, UsageError
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.tensors import Array

# Copies of the table's rows that a fit needs.
_COPIES = 5


def find_table(model: Model, name: str) -> tuple[str, SparseTable]:
    """Return the handle of a table with keys, and the table.

    Raises
    ------
    UsageError
        The model looks up no table of this name.
    """
    for handle, table in model.sparse_tables.items():
        if name in (handle, table.name) and lookups(model.graph, handle):
            return handle, table
    known = ", ".join(sorted(table.name for table in model.sparse_tables.values())) or "none"
    raise UsageError(f"--table {name}: no table with keys, expected one of: {known}")


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
    needed = _COPIES * table.count * table.dim * 4
    if needed > memory_limit:
        found = f"table '{table.name}': a fit needs {needed} bytes"
        raise ConversionError(f"{found}, expected --memory-limit to permit them")
    keys = np.concatenate([part.keys.read() for part in table.parts])
    rows = np.concatenate([np.asarray(part.rows.read(), np.float32) for part in table.parts])
    if not np.isfinite(rows).all():
        raise ConversionError(f"table '{table.name}': has rows that are not finite, expected finite ones")
    return keys, rows, _frequencies(table)
