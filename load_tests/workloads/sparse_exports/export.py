# SPDX-License-Identifier: Apache-2.0
"""Build a SavedModel node by node, and write its checkpoint with TensorFlow's SaveV2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import attr_value
from load_tests.workloads.sparse_exports.ops import OPS, define_op, load_tensorflow

__all__ = ["Array", "Export", "dense_weights", "partitioned"]

Array = np.ndarray


class Export:
    """Build a SavedModel.

    Tensors of the graph go by their names, such as `concat` or `split:1`.
    """

    def __init__(self) -> None:
        from tensorflow.core.framework import graph_pb2

        self.graph = graph_pb2.GraphDef()
        self.graph.versions.producer = 1286
        self.inputs: dict[str, tuple[Any, tuple[int | None, ...]]] = {}
        self.saved: dict[str, Array] = {}
        self._restores: list[str] = []
        self.const("model", "save/Const")

    def node(self, op: str, inputs: Sequence[str] = (), name: str = "", **attrs: Any) -> str:
        """Add a node; strings among `attrs` are types, except for names."""
        name = name or f"{op.rpartition('>')[2]}_{len(self.graph.node)}"
        assert all(node.name != name for node in self.graph.node), name
        node = self.graph.node.add(name=name, op=op)
        node.input.extend(inputs)
        for key, value in attrs.items():
            is_type = isinstance(value, str) and key not in {"shared_name", "container"}
            node.attr[key].CopyFrom(attr_value(load_tensorflow().as_dtype(value) if is_type else value))
        return name

    def const(self, value: Any, name: str = "") -> str:
        tf = load_tensorflow()
        array = np.asarray(value)
        proto = tf.make_tensor_proto(value) if array.dtype.kind in "OSU" else tf.make_tensor_proto(array)
        return self.node("Const", name=name, dtype=tf.as_dtype(proto.dtype), value=proto)

    def input(self, key: str, dtype: str = "int64", shape: tuple[int | None, ...] = (None,)) -> str:
        if key not in self.inputs:
            self.inputs[key] = (load_tensorflow().as_dtype(dtype), shape)
            self.node("Placeholder", name=key, dtype=dtype, shape=shape)
        return key

    def restored(self, name: str, dtype: Any) -> str:
        """Read a tensor of the checkpoint, in the restore graph."""
        names, slices = self.const([name.encode()]), self.const([b""])
        return self.node("RestoreV2", ["save/Const", names, slices], dtypes=[load_tensorflow().as_dtype(dtype)])

    def on_restore(self, node: str) -> None:
        self._restores.append(f"^{node}")

    def variable(self, name: str, value: Array) -> str:
        """Add a resource variable, saved and restored, and return the tensor that reads it."""
        self.saved[name] = value
        dtype = value.dtype
        self.node("VarHandleOp", name=name, dtype=dtype, shape=value.shape, shared_name=name)
        read = self.restored(name, dtype)
        self.on_restore(self.node("AssignVariableOp", [name, read], dtype=dtype))
        return self.node("ReadVariableOp", [name], name=f"{name}/Read", dtype=dtype)

    def concat(self, tensors: Sequence[str], name: str = "") -> str:
        axis = self.const(np.int32(-1))
        return self.node("ConcatV2", [*tensors, axis], name, N=len(tensors), T="float32", Tidx="int32")

    def finish(self, path: Path, rows: Sequence[str], width: int, outputs: dict[str, str] | None = None) -> Path:
        """Add the outputs and write the SavedModel. score = sigmoid(rows @ w), w = 1, 1/2, 1/3, …."""
        together = self.concat(rows, "rows") if len(rows) > 1 else self.node("Identity", rows, "rows", T="float32")
        weights = self.variable("dense/w", dense_weights(width))
        product = self.node("MatMul", [together, weights], "dense/MatMul", T="float32")
        self.node("Sigmoid", [product], "score", T="float32")
        return self.write(path, {"rows": "rows", "score": "score"} | (outputs or {}))

    def write(self, path: Path, outputs: dict[str, str]) -> Path:
        tf = load_tensorflow()
        from tensorflow.core.protobuf import saved_model_pb2

        self.node("NoOp", self._restores, "save/restore_all")
        saved_model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
        meta = saved_model.meta_graphs.add()
        meta.meta_info_def.tags.append("serve")
        used = {node.op for node in self.graph.node}
        meta.meta_info_def.stripped_op_list.op.extend(define_op(op, *OPS[op]) for op in OPS if op in used)
        meta.graph_def.CopyFrom(self.graph)
        meta.saver_def.filename_tensor_name = "save/Const:0"
        meta.saver_def.restore_op_name = "save/restore_all"
        signature = meta.signature_def["serving_default"]
        signature.method_name = "tensorflow/serving/predict"
        for key, (dtype, shape) in self.inputs.items():
            signature.inputs[key].name = f"{key}:0"
            signature.inputs[key].dtype = dtype.as_datatype_enum
            signature.inputs[key].tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
        for key, name in outputs.items():
            signature.outputs[key].name = name if ":" in name else f"{name}:0"
            signature.outputs[key].dtype = tf.float32.as_datatype_enum
            signature.outputs[key].tensor_shape.unknown_rank = True
        (path / "variables").mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
        names = sorted(self.saved)
        tensors = [tf.constant(self.saved[name]) for name in names]
        prefix = str(path / "variables" / "variables")
        if names:
            tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors)
        # SaveV2 writes one shard under the name of a set of one, as a Saver does after merging.
        return path


def dense_weights(width: int) -> Array:
    return (1.0 / np.arange(1, width + 1, dtype=np.float32)).reshape(-1, 1)


def partitioned(
    export: Export, ids: str, shards: list[Callable[[str], str]], buckets: int = 0, prefix: str = ""
) -> str:
    """Look up keys in the shard `key % buckets % shards`, and return the rows in the order of the keys."""
    count, scope = len(shards), export.node("Identity", [ids], T="int64")
    number = scope
    if buckets:
        number = export.node("FloorMod", [number, export.const(np.int64(buckets))], T="int64")
    number = export.node("FloorMod", [number, export.const(np.int64(count))], T="int64")
    number = export.node("Cast", [number], SrcT="int64", DstT="int32")
    zero, one = export.const(np.int32(0)), export.const(np.int32(1))
    size = export.node("Size", [scope], T="int64", out_type="int32")
    places = export.node("Range", [zero, size, one], Tidx="int32")
    partition, stitch = f"{prefix}DynamicPartition", f"{prefix}DynamicStitch{'Fast' if prefix else ''}"
    keys = export.node(partition, [scope, number], T="int64", num_partitions=count)
    places = export.node(partition, [places, number], T="int32", num_partitions=count)
    rows = [shard(f"{keys}:{i}") for i, shard in enumerate(shards)]
    order = [f"{places}:{i}" for i in range(count)]
    return export.node(stitch, [*order, *rows], N=count, T="float32")
