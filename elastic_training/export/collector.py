# SPDX-License-Identifier: Apache-2.0
"""Take what changed in a model between two steps of training."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training._library import ops
from elastic_training.export.changes import Changes
from elastic_training.export.contents import Contents
from elastic_training.layers.parts_of_model import tables_of, weights_of
from elastic_training.table import Table

# Consumer of change marks (kConsumers in src/storage/row_layout.h).
PUBLISHER = 0

_followers: weakref.WeakKeyDictionary[Table, weakref.ref[Collector]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Taken:
    """The changes of a model up to one instant, as tensors.

    Attributes
    ----------
    tables : {name in the export: (keys [n], rows [n, dim], keys that are gone [m])}
    variables : {name in the export: value}
    """

    tables: dict[str, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
    variables: dict[str, tf.Tensor]

    def changes(self) -> dict[str, Changes]:
        """Return the changes of tables by name in the export."""
        return {name: Changes.of(*(np.asarray(tensor) for tensor in tensors)) for name, tensors in self.tables.items()}


class Collector:
    """Takes the changes of a model's tables and weights that an export contains.

    Parameters
    ----------
    model
    contents : Contents
        Of the export.
    owner : str
        What messages call the publisher.

    Raises
    ------
    ValueError
        The model is not that of the export, or another publisher follows one of its tables.
    """

    def __init__(self, model: Any, contents: Contents, owner: str) -> None:
        tables, weights = tables_of(model), weights_of(model)
        self._tables: dict[str, Table] = {}
        self._variables: dict[str, tf.Variable] = {}
        for entry in contents.tables:
            table = tables[entry.place] if entry.place < len(tables) else None
            if table is None or (table.name, table.dim, table.settings.key) != (entry.table, entry.dim, entry.key):
                found = "none" if table is None else f"{table.name!r}, {table.settings.key} keys, dim {table.dim}"
                raise ValueError(
                    f"{owner}: table {entry.place} of the model is {found}, expected {entry.table!r}, "
                    f"{entry.key} keys, dim {entry.dim}, as in the export"
                )
            self._tables[entry.name] = table
        for variable in contents.variables:
            weight = weights[variable.place] if variable.place < len(weights) else None
            if weight is None or list(weight.shape) != variable.shape:
                found = "none" if weight is None else f"{weight.name!r} of shape {list(weight.shape)}"
                raise ValueError(
                    f"{owner}: weight {variable.place} of the model is {found}, expected {variable.variable!r} "
                    f"of shape {variable.shape}, as in the export"
                )
            self._variables[variable.name] = weight
        self.owner = owner
        for table in self._tables.values():
            other = _follower(table)
            if other is not None:
                raise ValueError(f"{owner}: table {table.name!r} is followed by {other.owner}, expected one publisher")
        for table in self._tables.values():
            _followers[table] = weakref.ref(self)
            ops().elastic_table_follow(table.handle, PUBLISHER)

    def take(self) -> Taken:
        """Return what changed since the last call; at the first one, everything."""
        tables = {
            name: tuple(ops().elastic_table_collect(table.handle, PUBLISHER, Tkeys=table.key_dtype))
            for name, table in self._tables.items()
        }
        # A read shares the memory of the variable until its next update, which then writes elsewhere.
        return Taken(tables, {name: variable.read_value() for name, variable in self._variables.items()})

    def close(self) -> None:
        """Let another publisher follow the tables."""
        for table in self._tables.values():
            if _follower(table) is self:
                del _followers[table]


def _follower(table: Table) -> Collector | None:
    found = _followers.get(table)
    return None if found is None else found()
