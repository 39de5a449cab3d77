# SPDX-License-Identifier: Apache-2.0
"""Test the reports on models whose content is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import inspect
from graph_tools.errors import UnreadableError
from graph_tools.report.inspect import AssetInfo
from graph_tools.verbs.inspect import Inspection
from helpers.models import verify_models


def _one(path: Path) -> Inspection:
    (found,) = inspect(path).models
    return found


def test_signatures_are_named_with_dtypes_and_shapes(string_model: Path) -> None:
    (signature,) = _one(string_model).signatures
    assert signature.name == "serving_default"
    assert [(source.name, source.dtype, source.shape) for source in signature.inputs] == [
        ("item", "string", [None]), ("price", "float32", [None])
    ]  # fmt: skip
    assert [output.name for output in signature.outputs] == ["id", "label", "score"]


def test_assets_and_tables_that_files_fill(string_model: Path) -> None:
    found = _one(string_model)
    assert found.assets == [AssetInfo("string.vocabulary.txt", 23)]
    assert [(table.family, table.rows, table.used) for table in found.tables] == [("asset", None, True)]
    assert found.custom_ops == found.families == []


def test_nodes_of_functions_are_counted_as_exported(tiny_model: Path, tf1_model: Path) -> None:
    new, old = _one(tiny_model), _one(tf1_model)
    assert new.kind == "SavedModel (TF 2)"
    assert new.functions > 0
    assert old.functions == 0
    assert new.ops["MatMul"] == old.ops["MatMul"] == 1
    assert not any(op.startswith("__inference") for op in new.ops)
    assert sum(old.ops.values()) == old.nodes > old.needed_nodes


def test_slots_copies_and_variables_that_nothing_reads(tmp_path: Path) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 16], name="x")
        weights = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32)
        w = v1.get_variable("w", initializer=weights, use_resource=True)
        copy = v1.get_variable("copy", initializer=weights, use_resource=True)
        unread = v1.get_variable("unread", initializer=weights + 1, use_resource=True)
        y = tf.matmul(x, w) + tf.matmul(x, copy)
        v1.train.AdamOptimizer().minimize(tf.reduce_sum(y) + tf.reduce_sum(unread))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "m"), inputs={"x": x}, outputs={"y": y})
    found = _one(tmp_path / "m")
    variables = {variable.name: variable for variable in found.variables}
    assert (variables["w"].used, variables["w"].bytes) == (True, 2048)
    assert {variables["w"].duplicate_of, variables["copy"].duplicate_of} == {None, "copy"}
    assert not variables["unread"].used
    assert not variables["w/Adam"].used
    reasons = {tensor.name: tensor.reason for tensor in found.unused_tensors}
    assert "optimizer slots" in reasons["w/Adam_1"]
    assert reasons["unread"] != reasons["w/Adam_1"]
    assert "w" not in reasons
    # Two slots for each of three variables, what is not read, and the copy.
    assert found.needless_bytes == pytest.approx(8 * 2048, abs=64)


def test_hash_tables_of_the_checkpoint(tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0])
    module.table.insert(["a", "b", "c"], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="item")])
    def serve(item: Any) -> dict[str, Any]:
        return {"y": module.table.lookup(item)}

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": serve})
    (table,) = _one(tmp_path / "m").tables
    assert (table.family, table.rows, table.dim, table.dtype, table.used) == ("tensorflow", 3, 2, "float32", True)
    assert table.bytes == 3 * (16 + 8)


def test_models_side_by_side(tiny_model: Path, tmp_path: Path) -> None:
    report = inspect(tiny_model, verify_models.build_lookup(tmp_path / "m"))
    assert [model.path for model in report.models] == [str(tiny_model), str(tmp_path / "m")]


def test_paths_without_a_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="does not exist, expected a SavedModel or a GraphDef"):
        inspect(tmp_path / "none")
