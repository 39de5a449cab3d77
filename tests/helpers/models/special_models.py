# SPDX-License-Identifier: Apache-2.0
"""Export models for single questions: number of runs, runs that fail, graphs with faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.models.model_builders import DTYPES
from helpers.models.quiet_tensorflow import tensorflow


def build_counter(path: Path) -> Path:
    """amount int64 [batch], note string [batch] -> total int64 []: the sum of all amounts of all runs so far.

    The signature "twice" does the same with doubled amounts, "now" (nothing -> total) adds nothing.
    """
    tf = tensorflow()
    module = tf.Module()
    module.total = tf.Variable(0, dtype=tf.int64, name="total")
    inputs = [tf.TensorSpec([None], tf.int64, name="amount"), tf.TensorSpec([None], tf.string, name="note")]

    @tf.function(input_signature=inputs)
    def serve(amount: Any, note: Any) -> dict[str, Any]:
        with tf.control_dependencies([tf.debugging.assert_equal(tf.size(amount), tf.size(note))]):
            return {"total": module.total.assign_add(tf.reduce_sum(amount))}

    @tf.function(input_signature=inputs[:1])
    def twice(amount: Any) -> dict[str, Any]:
        return {"total": module.total.assign_add(2 * tf.reduce_sum(amount))}

    @tf.function(input_signature=[])
    def now() -> dict[str, Any]:
        return {"total": tf.identity(module.total)}

    module.serve, module.twice, module.now = serve, twice, now
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve, "twice": twice, "now": now})
    return path


def build_parser(path: Path) -> Path:
    """text string [batch] -> number float32 [batch]; it fails for a text that is not a number."""
    tf = tensorflow()
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(text: Any) -> dict[str, Any]:
        return {"number": tf.strings.to_number(text)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def build_every_dtype(path: Path) -> Path:
    """Export an input of every dtype, of unknown rank, named like it -> outputs with the same names and values."""
    tf = tensorflow()
    module = tf.Module()
    specs = {name: tf.TensorSpec(None, tf.as_dtype(dtype), name=name) for name, dtype in DTYPES.items()}

    @tf.function(input_signature=[specs])
    def serve(inputs: Any) -> dict[str, Any]:
        return {name: tf.identity(tensor) for name, tensor in inputs.items()}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def build_hungry(path: Path) -> Path:
    """x float32 [batch] -> y; it fills 32 GiB per row on the way. Signature `plain`: x -> 2 x without that."""
    tf = tensorflow()
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        rows = tf.shape(x, out_type=tf.int64)[0]
        return {"y": x + tf.reduce_max(tf.fill([rows * (1 << 33)], x[0]))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def plain(x: Any) -> dict[str, Any]:
        return {"y": 2.0 * x}

    tf.saved_model.save(module, str(path), signatures={"serving_default": serve, "plain": plain})
    return path


def edit_model(source: Path, path: Path, edit: Callable[[Any], object]) -> Path:
    """Copy a SavedModel and change its MetaGraphDef."""
    tensorflow()
    from tensorflow.core.protobuf import saved_model_pb2

    shutil.copytree(source, path)
    saved_model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    edit(meta_graph)
    (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return path


def add_embedding_variable(nodes: Any) -> None:
    """Append to a list the nodes that look up a row in DeepRec's EmbeddingVariable."""
    tensorflow()
    from tensorflow.core.framework import types_pb2

    handle = nodes.add(name="embedding", op="KvVarHandleOp")
    handle.attr["dtype"].type = types_pb2.DT_FLOAT
    handle.attr["Tkeys"].type = types_pb2.DT_INT64
    handle.attr["shared_name"].s = b"embedding"
    ids = nodes.add(name="embedding_ids", op="Const")
    ids.attr["dtype"].type = types_pb2.DT_INT64
    ids.attr["value"].tensor.dtype = types_pb2.DT_INT64
    ids.attr["value"].tensor.int64_val.append(7)
    lookup = nodes.add(name="embedding_lookup", op="KvResourceGather")
    lookup.input.extend(["embedding", "embedding_ids"])
    lookup.attr["dtype"].type = types_pb2.DT_FLOAT
    lookup.attr["Tkeys"].type = types_pb2.DT_INT64
