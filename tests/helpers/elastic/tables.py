# SPDX-License-Identifier: Apache-2.0
"""What tests read of a table of elastic_training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training import Table
from elastic_training._library import ops


def updates(table: Table) -> int:
    """Return the number of updates so far."""
    return int(ops().elastic_table_step(table.handle))


def new_rows(layer: Any, keys: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Give each key a row, and return the initial rows [keys, dim]; the layer has no combiner."""
    rows: np.ndarray[Any, np.dtype[np.float32]] = layer(tf.constant(list(keys)), training=True).numpy()
    return rows


def rows_of(layer: Any, keys: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the rows of keys [keys, dim]; the layer has no combiner."""
    rows: np.ndarray[Any, np.dtype[np.float32]] = layer(tf.constant(list(keys)), training=False).numpy()
    return rows
