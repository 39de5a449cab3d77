# SPDX-License-Identifier: Apache-2.0
"""Cuts of what changed in a model, begun between two steps of training."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from elastic_training._library import ops
from elastic_training.checkpoints.cut import Reading
from elastic_training.export.changes import Changes
from elastic_training.export.contents import Contents
from elastic_training.layers.parts_of_model import tables_of, weights_of
from elastic_training.table import FULL, RELEASED, Table

_followers: weakref.WeakKeyDictionary[Table, weakref.ref[Collector]] = weakref.WeakKeyDictionary()


class ChangesCut(Reading):
    """What changed in tables since the cut of changes before, as it was when this object was made.

    Parameters
    ----------
    tables : sequence of Table
        Each is followed.
    memory_bytes : int
        Of rows that training changes before they were read. Rows beyond are left to the next cut, and `end` returns
        False.
    """

    def __init__(self, tables: Sequence[Table], memory_bytes: int) -> None:
        self.tables = list(tables)
        self._handle = ops().elastic_table_changes_begin([table.handle for table in self.tables], memory_bytes)

    def changes(self, position: int) -> Changes:
        """Read a table to its end."""
        table = self.tables[position]
        gone = [self.evicted(position).of(table)]
        keys, rows = [gone[0][:0]], [np.zeros((0, table.dim), np.float32)]
        for block in self.rows(position):
            found, kinds = block.keys.of(table), block.meta[:, 2]
            keys.append(found[kinds == FULL])
            rows.append(block.values)
            gone.append(found[kinds == RELEASED])
        return Changes.of(np.concatenate(keys), np.concatenate(rows), np.concatenate(gone))


@dataclass(frozen=True)
class Taken:
    """The changes of a model up to one instant: those of tables are read later, values of variables are shared.

    Attributes
    ----------
    collector : Collector
    names : list of str
        Of tables in the export, in the order of the cut.
    cut : ChangesCut
    variables : {name in the export: value}
    """

    collector: Collector
    names: list[str]
    cut: ChangesCut
    variables: dict[str, tf.Tensor]

    def changes(self) -> dict[str, Changes]:
        """Read the changes of tables, by name in the export."""
        return {name: self.cut.changes(position) for position, name in enumerate(self.names)}


class Collector:
    """Begins cuts of the changes of a model's tables and weights that an export contains.

    Parameters
    ----------
    model
    contents : Contents
        Of the export.
    owner : str
        What messages call the publisher.
    memory_bytes : int
        See `ChangesCut`.

    Raises
    ------
    ValueError
        The model is not that of the export, or another publisher follows one of its tables.
    """

    def __init__(self, model: Any, contents: Contents, owner: str, memory_bytes: int) -> None:
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
        self._memory_bytes = memory_bytes
        for table in self._tables.values():
            _followers[table] = weakref.ref(self)
        # Also if nobody calls close.
        self._unfollow = weakref.finalize(self, _unfollow, [table.handle for table in self._tables.values()])
        self._unfollow.atexit = False
        self.follow()

    def follow(self) -> None:
        """Begin anew: the next cut has all rows of the tables."""
        for table in self._tables.values():
            ops().elastic_table_follow(table.handle, True)

    def take(self) -> Taken:
        """Begin a cut of what changed since the last one; at first, of everything.

        Raises
        ------
        tensorflow.errors.FailedPreconditionError
            The cut before has not ended.
        """
        # A read shares the memory of the variable until its next update, which then writes elsewhere.
        values = {name: variable.read_value() for name, variable in self._variables.items()}
        return Taken(self, list(self._tables), ChangesCut(list(self._tables.values()), self._memory_bytes), values)

    def close(self) -> None:
        """Let another publisher follow the tables, and the tables forget what they noted for this one."""
        for table in self._tables.values():
            if _follower(table) is self:
                del _followers[table]
        self._unfollow()


def _unfollow(handles: Sequence[tf.Tensor]) -> None:
    # It may run while some graph is built, and after a table is gone.
    with context.eager_mode():
        for handle in handles:
            with suppress(tf.errors.NotFoundError):
                ops().elastic_table_follow(handle, False)


def _follower(table: Table) -> Collector | None:
    found = _followers.get(table)
    return None if found is None else found()
