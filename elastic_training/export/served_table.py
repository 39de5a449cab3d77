# SPDX-License-Identifier: Apache-2.0
"""The rows of a table as TensorFlow's own hash table, from which exported models read."""

from __future__ import annotations

import re
import uuid
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training.initializers import Constant
from elastic_training.table import FULL, Table

# Rows that are written at a time.
_PART_ROWS = 1 << 18


class ServedTable(tf.lookup.experimental.MutableHashTable):
    """A copy of a table's rows, by key; other keys read the table's default row.

    Rows without weights are left out: under group lasso they read the default row, zeros, as well.
    """

    def __init__(self, table: Table) -> None:
        # Tables of two models in one process must not meet under one name.
        self._unique_name = f"elastic_training/{uuid.uuid4().hex}"
        super().__init__(table.key_dtype, tf.float32, default_row(table), name=node_name(table.name))
        rows = max(1, table.size())
        for part in range(parts := -(-rows // _PART_ROWS)):
            keys, contents = table.export(part, parts)
            full = contents.meta.numpy()[:, 2] == FULL
            self.insert(tf.constant(keys[full], table.key_dtype), tf.constant(contents.weights.numpy()[full]))

    def _create_resource(self) -> tf.Tensor:
        self._table_name = self._name
        return tf.raw_ops.MutableHashTableOfTensorsV2(
            key_dtype=self._key_dtype,
            value_dtype=self._value_dtype,
            value_shape=self._value_shape,
            shared_name=self._unique_name,
            name=self._name,
        )

    def find(self, keys: tf.Tensor, default: Any) -> tf.Tensor:
        """Return the rows [..., dim] of keys [...]."""
        rows = tf.raw_ops.LookupTableFindV2(table_handle=self.resource_handle, keys=keys, default_value=default)
        rows.set_shape(keys.shape.concatenate(self._value_shape))
        return rows


def default_row(table: Table) -> np.ndarray:
    """Return what keys without a row read, [dim] float32."""
    default = table.settings.default
    return np.full(table.dim, default.value if isinstance(default, Constant) else 0.0, np.float32)


def node_name(name: str) -> str:
    """Return a name as a node of a graph may have it."""
    plain = re.sub(r"[^A-Za-z0-9_./-]", "_", name).strip("/")
    return plain if re.match(r"[A-Za-z0-9.]", plain) else f"table_{plain}"
