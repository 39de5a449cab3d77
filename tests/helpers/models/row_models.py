# SPDX-License-Identifier: Apache-2.0
"""A live model whose answers are rows of one table, with files that tests may damage and deltas that change it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import processor
from graph_tools import optimize
from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.store.lineage import write_lineage
from graph_tools.tensors import ArrayTensor
from helpers.models.idiom_models import export_function
from helpers.models.live_models import START

DIM = 24


def values_of(rows: NDArray[np.int64], value: float = 0) -> NDArray[np.float32]:
    """Return the rows with these numbers, float32 [..., DIM], as a delta by `value` makes them."""
    return (rows[..., None] + np.arange(DIM) / 100 + value).astype(np.float32)


def make_row_model(folder: Path, count: int) -> Path:
    """Write an artifact with `count` rows; its input is `a` (row numbers), its output `rows` [n, DIM]."""
    table = tf.Variable(values_of(np.arange(count)), name="table")
    bias = tf.Variable(np.zeros(DIM, np.float32), name="bias")

    def serve(a: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"rows": tf.nn.relu(tf.gather(table, a) + bias)}

    specs = [tf.TensorSpec([None], tf.int64, name="a")]
    source = export_function(folder / "export", serve, specs, table=table, bias=bias)
    write_lineage(source, START)
    optimize(source, folder / "artifact", live=True, precision="fp32", accept_weak_proof=True)
    return folder / "artifact"


def delta_of(rows: NDArray[np.int64], value: float) -> Delta:
    """Return a delta that changes rows by `value`."""
    changed = TableDelta(
        "table", "row_number", DIM, ArrayTensor(rows), ArrayTensor(values_of(rows, value)), no_keys("row_number")
    )
    return Delta((changed,), {})


def table_in(model: Path) -> Path:
    """Return the file of the table."""
    (table,) = (model / "assets").glob("*.emb")
    return table


def damage(table: Path, offset: int) -> None:
    """Change a bit of a file."""
    table.chmod(0o600)
    with table.open("r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
        os.fsync(file.fileno())


def ask(model: processor.Model, rows: Any) -> NDArray[np.float32]:
    """Return what the model answers for row numbers."""
    found: NDArray[np.float32] = model.run({"a": np.asarray(rows, np.int64)})["rows"]
    return found
