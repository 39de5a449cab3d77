# SPDX-License-Identifier: Apache-2.0
"""Find NaN and infinities in deltas, which servers refuse."""

from __future__ import annotations

import numpy as np

from graph_tools.store.delta import Delta, TableDelta
from graph_tools.tensors import Array, rows_per_chunk

_CHUNK_BYTES = 4 << 20


def find_not_finite(delta: Delta) -> str | None:
    """Return the first number that is NaN or infinite, with its table and key or its variable; None without one."""
    for table in delta.tables:
        found = _in_rows(table) or _in_default_rows(table)
        if found is not None:
            return f"table '{table.name}': {found}"
    for name, tensor in delta.variables.items():
        done = 0
        for block in tensor.chunks(rows_per_chunk(tensor, _CHUNK_BYTES)):
            place = _first(block)
            if place is not None:
                at = np.unravel_index(done + place, tuple(tensor.shape)) if tensor.shape else ()
                return f"variable '{name}': {block.reshape(-1)[place]} at {[int(index) for index in at]}"
            done += block.size
    return None


def _in_rows(table: TableDelta) -> str | None:
    count = rows_per_chunk(table.rows, _CHUNK_BYTES)
    for keys, rows in zip(table.changed.chunks(count), table.rows.chunks(count), strict=True):
        place = _first(rows)
        if place is not None:
            row = place // table.dim
            key = f"'{keys[row].decode(errors='replace')}'" if isinstance(keys[row], bytes) else int(keys[row])
            return f"{rows.reshape(-1)[place]} in the row of key {key}"
    return None


def _in_default_rows(table: TableDelta) -> str | None:
    place = None if table.default_rows is None else _first(table.default_rows)
    if place is None or table.default_rows is None:
        return None
    number = table.default_numbers[place // table.dim]
    return f"{table.default_rows.reshape(-1)[place]} in default row {number}"


def _first(block: Array) -> int | None:
    """Return the place of the first number that is not finite."""
    bad = ~np.isfinite(block.reshape(-1))
    return int(bad.argmax()) if bad.any() else None
