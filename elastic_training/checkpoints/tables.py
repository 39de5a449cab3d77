# SPDX-License-Identifier: Apache-2.0
"""The tables of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from elastic_training.table import Table


def _layers(item: Any) -> Iterator[Any]:
    yield item
    if hasattr(item, "_flatten_layers"):
        yield from item._flatten_layers(include_self=False)
    elif isinstance(item, tf.Module):
        yield from item.submodules


def tables_of(objects: Mapping[str, Any]) -> list[Table]:
    """Return the tables that models, layers and modules use, each once.

    Raises
    ------
    ValueError
        If two tables have the same name.
    """
    found: dict[str, Table] = {}
    for item in objects.values():
        for layer in _layers(item):
            tables = {"": layer} if isinstance(layer, Table) else getattr(layer, "tables", None)
            for table in tables.values() if isinstance(tables, Mapping) else ():
                if isinstance(table, Table) and found.setdefault(table.name, table) is not table:
                    raise ValueError(f"checkpoint: two tables have the name {table.name!r}, expected different names")
    return list(found.values())
