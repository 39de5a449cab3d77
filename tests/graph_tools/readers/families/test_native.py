# SPDX-License-Identifier: Apache-2.0
"""Tables that TensorFlow's own MutableHashTable holds are sparse tables, unless requests change them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools import cut
from graph_tools.readers import read_model
from graph_tools.verification.evaluate import evaluate
from helpers.models.idiom_models import export_function

KEYS = {"int64": np.array([5, -3, 2**62]), "string": np.array([b"a", b"", b"c"], object)}
ROWS = np.arange(6, dtype=np.float32).reshape(3, 2) + 1
ASKED = {"int64": np.array([-3, 9, 5]), "string": np.array([b"", b"zz", b"a"], object)}
SPECS = {name: [tf.TensorSpec([None], name, name="keys")] for name in KEYS}


def native(kind: str, default: Any, name: str = "rows") -> Any:
    table = tf.lookup.experimental.MutableHashTable(kind, tf.float32, default, name=name)
    table.insert(tf.constant(KEYS[kind]), tf.constant(ROWS))
    return table


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("default", [0.0, 0.5])
def test_rows_keys_and_default(tmp_path: Path, kind: str, default: float) -> None:
    table = native(kind, [default, default])
    path = export_function(
        tmp_path / "m", lambda keys: {"rows": table.lookup(keys)}, SPECS[kind], table=table, weight=tf.Variable(1.0)
    )
    model = read_model(path)
    found = model.sparse_tables["rows"]
    assert (found.family, found.dim, found.count) == ("tensorflow", 2, 3)
    assert found.absent.kind == ("row" if default else "zero")
    expected = np.array([ROWS[1], [default, default], ROWS[0]])
    np.testing.assert_array_equal(evaluate(model, "serving_default", {"keys": ASKED[kind]})["rows"], expected)
    cut(path, tmp_path / "cut", accept_weak_proof=True)
    serve = tf.saved_model.load(str(tmp_path / "cut")).signatures["serving_default"]
    np.testing.assert_array_equal(serve(keys=tf.constant(ASKED[kind]))["rows"], expected)


def test_each_lookup_has_its_default(tmp_path: Path) -> None:
    table = native("int64", [0.5, 0.5])

    def serve(keys: tf.Tensor) -> dict[str, tf.Tensor]:
        given = tf.cast(keys, tf.float32)[:, tf.newaxis] * tf.constant([1.0, -1.0])
        return {"one": table.lookup(keys), "other": table.lookup(keys, given), "zero": table.lookup(keys, tf.zeros(2))}

    path = export_function(tmp_path / "m", serve, SPECS["int64"], table=table)
    found = evaluate(read_model(path), "serving_default", {"keys": ASKED["int64"]})
    for name, default in {"one": [0.5, 0.5], "other": [9, -9], "zero": [0, 0]}.items():
        np.testing.assert_array_equal(found[name], [ROWS[1], default, ROWS[0]])


def test_table_that_requests_change_stays(tmp_path: Path) -> None:
    table = native("int64", [0.0, 0.0])

    def serve(keys: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([table.insert(keys, tf.ones([tf.size(keys), 2]))]):
            return {"rows": table.lookup(keys)}

    model = read_model(export_function(tmp_path / "m", serve, SPECS["int64"], table=table))
    assert not model.sparse_tables
    assert model.hash_tables
