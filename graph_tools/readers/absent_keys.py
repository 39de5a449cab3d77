# SPDX-License-Identifier: Apache-2.0
"""What the user wants absent keys to be given: `TABLE=zero`, `TABLE=row:K` or `TABLE=default`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.model import Model
from graph_tools.tables.evaluate import find_rows
from graph_tools.tables.table import Absent, SparseTable
from graph_tools.tensors import Array

DEFAULT, ZERO, ROW = "default", "zero", "row:"

_PART = re.compile(r"/part_\d+$")


def base_name(table: str) -> str:
    """Return the name of a table without the number of its part."""
    return _PART.sub("", table)


def wanted(absent: dict[str, str], table: str) -> str | None:
    """Return what is wanted for a table, by its own name or that of the table it is a part of."""
    return absent.get(table, absent.get(base_name(table)))


def is_set(absent: dict[str, str], table: str) -> bool:
    """Say whether the user gives a table's absent value, so that the export's own does not matter."""
    return wanted(absent, table) not in (None, DEFAULT)


def how_to_choose(table: str) -> str:
    """Say which option settles a table's absent value."""
    return f"--absent-key {base_name(table)}=zero or {base_name(table)}=row:K"


def check_absent_keys(absent: dict[str, str]) -> None:
    """Raise `UsageError` for a value that means nothing."""
    for table, value in absent.items():
        if value not in (DEFAULT, ZERO) and not (value.startswith(ROW) and len(value) > len(ROW)):
            raise UsageError(f"--absent-key {table}={value}: '{value}', expected zero, row:K or default")


def apply_absent_keys(model: Model, absent: dict[str, str]) -> None:
    """Set the absent values that the user wants.

    Raises
    ------
    UsageError
        A table is not there, or has no row of that key.
    """
    for name, value in absent.items():
        tables = [table for table in model.sparse_tables.values() if name in (table.name, base_name(table.name))]
        if not tables:
            have = ", ".join(sorted({base_name(one) for one in model.sparse_tables})) or "none there"
            raise UsageError(f"--absent-key {name}={value}: no table '{name}', expected one of: {have}")
        if value == DEFAULT:
            continue
        option = f"--absent-key {name}={value}"
        rows = None if value == ZERO else _row(tables, value.removeprefix(ROW), option)
        for table in tables:
            table.absent = Absent(rows, option)


def _row(tables: list[SparseTable], text: str, option: str) -> Array:
    """Return the row [1, dim] of a key, in whichever part it is."""
    dtype = tables[0].key_dtype
    key: Any = text.encode()
    if dtype.kind != "O":
        try:
            key = _integer(text, dtype)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{option}: key '{text}', expected one of type {dtype}") from error
    keys = np.empty(1, dtype)
    keys[0] = key
    for table in tables:
        rows, found = find_rows(table, keys)
        if found[0]:
            return rows
    raise UsageError(f"{option}: key {text} is not in the table, expected one that is")


def _integer(text: str, dtype: Any) -> int:
    key, limits = int(text), np.iinfo(dtype)
    if not limits.min <= key <= limits.max:
        raise OverflowError(text)
    return key
