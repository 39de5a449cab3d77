# SPDX-License-Identifier: Apache-2.0
"""Rows of tables in checkpoints of TensorFlow (tf.train.Checkpoint).

TensorFlow gathers all tensors before it writes them, so a table needs its size again in memory.
`et.Checkpoints` does without that.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training.checkpoints.cut import Cut, Keys, Restoring, Rows, check, to_json
from elastic_training.table import Table

_ONLY_TABLE = "table"
NO_SAVED_MODEL = "SavedModels have no tables that learn, expected et.export(model, path), or model.save('model.keras')"


class TrackableRows(tf.__internal__.tracking.Trackable):
    """What TensorFlow saves and restores for a table."""

    def __init__(self, table: Table) -> None:
        # The table must not live as long as what is known of it.
        self._reference = weakref.ref(table)

    def _table(self) -> Table:
        table = self._reference()
        if table is None:
            raise ValueError("checkpoint: a table was deleted, expected its layer to keep it")
        return table

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return to_tensors(self._table())

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> None:
        from_tensors(self._table(), restored_tensors)


_known: weakref.WeakKeyDictionary[Table, TrackableRows] = weakref.WeakKeyDictionary()


def _rows_of(table: Table) -> TrackableRows:
    """Return the one object for a table; layers that share the table then save it once."""
    return _known.setdefault(table, TrackableRows(table))


def to_tensors(table: Table) -> dict[str, tf.Tensor]:
    """Return the rows of a table by what they are.

    Raises
    ------
    ValueError
        If this is not eager: SavedModels hold no tables that learn.
    """
    if not tf.executing_eagerly():
        raise ValueError(f"table {table.name!r}: saved by a graph, expected tf.train.Checkpoint or et.export")
    cut = Cut([table])
    blocks = list(cut.rows(0))
    filter_state = cut.filter(0)
    cut.end(succeeded=True)
    description = cut.describe(0)

    def joined(arrays: list[np.ndarray], *columns: int) -> np.ndarray:
        return np.concatenate(arrays) if arrays else np.zeros((0, *columns))

    columns = description["dim"] + description["slots"]
    return {
        "description": tf.constant(to_json(description)),
        "filter": tf.constant(filter_state),
        "keys": tf.constant(joined([block.keys.numbers for block in blocks]), tf.int64),
        "lengths": tf.constant(joined([block.keys.lengths for block in blocks]), tf.uint32),
        "texts": tf.constant(b"".join(block.keys.texts for block in blocks)),
        "values": tf.constant(joined([block.values for block in blocks], columns), tf.float32),
        "meta": tf.constant(joined([block.meta for block in blocks], 3), tf.uint32),
    }


def from_tensors(table: Table, tensors: dict[str, tf.Tensor]) -> None:
    """Take over what to_tensors returned.

    Raises
    ------
    ValueError
        If it is of another table.
    """
    with tf.init_scope():
        if not tf.executing_eagerly():
            raise ValueError(f"table {table.name!r}: restored by a graph, expected eager execution")
        found = {name: tensors[name].numpy() for name in tensors}
    description = json.loads(found["description"])
    check(table, description, "tf.train.Checkpoint")
    restoring = Restoring(table, description, found["filter"])
    keys = Keys(found["keys"], found["lengths"], found["texts"])
    restoring.insert(Rows(keys, found["values"], found["meta"]))
    restoring.end()


class TablesAsChildren:
    """A mixin of layers and modules: their tables are in checkpoints of TensorFlow.

    The only table of a layer is found by its layer, whatever both are called, since names that Keras gives depend on
    what the process has made before. Several tables of a layer are found by their names.
    """

    _group: Any
    # Whether instances have one table, whatever its name is.
    _one_table = False

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        children: dict[str, Any] = super()._trackable_children(save_type, **options)  # type: ignore[misc]
        if save_type == "savedmodel" and getattr(self, "_group", None) is not None:
            raise ValueError(f"{self._group.owner}: {NO_SAVED_MODEL}")
        if save_type == "checkpoint":
            children.update(self._tables_by_child())
        return children

    def _tables_by_child(self) -> dict[str, TrackableRows]:
        group = getattr(self, "_group", None)  # Keras asks before there is one
        if group is None:
            return {}
        return {self._child_name(name): _rows_of(table) for name, table in group.tables.items()}

    def _child_name(self, table: str) -> str:
        return _ONLY_TABLE if self._one_table else f"{_ONLY_TABLE}:{table}"

    def _lookup_dependency(self, name: str, *arguments: Any) -> Any:
        """Return the child of a name in a checkpoint; None if there is none yet.

        Raises
        ------
        ValueError
            If a checkpoint has a table that the layer will never have: TensorFlow would leave its rows out silently.
        """
        found = super()._lookup_dependency(name, *arguments)  # type: ignore[misc]
        if found is not None or name.partition(":")[0] != _ONLY_TABLE:
            return found
        known = [self._child_name(table) for table in self._group.table_names()]
        if name not in known:
            table = name.partition(":")[2]
            saved = f"table {table!r}" if table else "a layer with one table"
            has = ", ".join(map(repr, self._group.table_names()))
            found = f"it has rows of {saved} for {self._group.owner}, which has {has}"
            raise ValueError(f"{_file_that_is_restored()}: {found}; expected tables of the same names")
        return self._tables_by_child().get(name)

    def _on_table(self) -> Callable[[Table], None]:
        """Return what the group calls for a new table: a checkpoint may have been restored before the table existed."""

        def restore(table: Table) -> None:
            self._handle_deferred_dependencies(name=self._child_name(table.name), trackable=_rows_of(table))  # type: ignore[attr-defined]

        return restore


def _file_that_is_restored() -> str:
    """Return the path that tf.train.Checkpoint restores now; TensorFlow tells it to no child."""
    frame = sys._getframe(1)
    while frame is not None:
        position = frame.f_locals.get("checkpoint_position")
        path = getattr(getattr(position, "checkpoint", None), "save_path_string", None)
        if path is not None:
            return str(path)
        frame = frame.f_back  # type: ignore[assignment]
    return "tf.train.Checkpoint"
