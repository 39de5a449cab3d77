# SPDX-License-Identifier: Apache-2.0
"""Apply the user's values for absent keys: `TABLE=zero`, `TABLE=row:K` or `TABLE=default`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.model import Model
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.options import last_match
from graph_tools.tables.evaluate import find_rows
from graph_tools.tensors import Array

DEFAULT, ZERO, ROW = "default", "zero", "row:"

_PART = re.compile(r"/part_\d+$")


def base_name(table: str) -> str:
    """Return the name of a table without the number of its part."""
    return _PART.sub("", table)


def requested_value(absent: dict[str, str], table: str) -> str | None:
    """Return the user's value for a table, by its own name or by the name of the table that it is a part of."""
    own = last_match(absent, table)
    return own if own is not None else last_match(absent, base_name(table))


def is_set(absent: dict[str, str], table: str) -> bool:
    """Return whether the user sets a table's absent value, so that the value in the export does not matter."""
    return requested_value(absent, table) not in (None, DEFAULT)


def how_to_choose(table: str) -> str:
    """Return the option that sets a table's absent value."""
    return f"--absent-key {base_name(table)}=zero or {base_name(table)}=row:K"


def check_absent_keys(absent: dict[str, str]) -> None:
    """Raise `UsageError` for a value that is not valid."""
    for table, value in absent.items():
        if value not in (DEFAULT, ZERO) and not (value.startswith(ROW) and len(value) > len(ROW)):
            raise UsageError(f"--absent-key {table}={value}: '{value}', expected zero, row:K or default")


def apply_absent_keys(model: Model, absent: dict[str, str]) -> None:
    """Set the absent values that the user chose, in the tables that have been read so far.

    Raises
    ------
    UsageError
        A table has no row for the given key.
    """
    for name, table in model.sparse_tables.items():
        if not is_set(absent, name):
            continue
        value = requested_value(absent, name)
        assert value is not None
        option = f"--absent-key {base_name(name)}={value}"
        kin = [
            sparse_table
            for sparse_table in model.sparse_tables.values()
            if base_name(sparse_table.name) == base_name(name)
        ]
        table.absent = Absent(None if value == ZERO else _row(kin, value.removeprefix(ROW), option), option)


def _row(tables: list[SparseTable], text: str, option: str) -> Array:
    """Return the row [1, dim] of a key, from the part that contains it."""
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
