# SPDX-License-Identifier: Apache-2.0
"""Write SavedModels like training systems with custom ops: graphs by hand, checkpoints by TensorFlow's SaveV2.

The ops are described in `stripped_op_list` and not registered, as for a user who has only the export. Models have the
inputs `user` and `item`, and the outputs `rows` (the looked-up rows, concatenated) and `score`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import attr_value

Array = np.ndarray

# Op: inputs, outputs; `name: type`, a type being TensorFlow's or an attribute; `N * type` for as many as attribute N,
# `[T]` for a list of types.
OPS = {
    "KvVarHandleOp": ("", "resource: resource"),
    "InitializeKvVariableOp": (
        "resource_self: resource, resource_primary: resource, value: dtype, empty_key: Tkeys",
        "",
    ),
    "KvResourceGather": ("resource: resource, indices: Tkeys, default_value: dtype", "output: dtype"),
    "KvResourceGatherV1": (
        "resource: resource, indices: Tkeys, default_value: dtype, counts: counts_type",
        "output: dtype",
    ),
    "KvResourceImportV2": (
        "prefix: string, resource_self: resource, resource_primary: resource, value: dtype, tensor_names: string, "
        "empty_key: Tkeys",
        "",
    ),
    "GroupEmbeddingVarLookup": (
        "resource: num_lookups * resource, sp_values: num_lookups * Tkeys",
        "output: num_lookups * dtype",
    ),
    "KvVariable": ("", "table_handle: resource"),
    "KvVariableV2": ("", "table_handle: resource"),
    "KvVariableV3": ("", "table_handle: resource"),
    "KvVariableV4": ("", "table_handle: resource"),
    "KvVariableGatherOrZerosV2": ("table_handle: resource, indices: Tindices", "output: dtype"),
    "KvVariableGatherOrInsertV2": ("table_handle: resource, indices: Tindices", "output: dtype"),
    "KvVariableGatherOrInsertWithCounts": ("table_handle: resource, indices: Tindices, counts: int32", "output: dtype"),
    "KvVariableGatherV2": ("table_handle: resource, indices: Tindices, use_init_value: bool", "output: dtype"),
    "BatchKvVariableGatherOrZerosV2": ("table_handles: N * resource, indices: N * Tindices", "output: N * dtype"),
    "KvVariableFullOrDeltaImport": (
        "table_handle: resource, keys: Tin, values: Tout, init_table: Tout, blacklist: Tin, freq_keys: Tin, "
        "freq_values: uint32, need_full_import: bool, delete_keys: Tin",
        "",
    ),
    "TFRA>CuckooHashTableOfTensors": ("", "table_handle: resource"),
    "TFRA>CuckooHashTableFind": ("table_handle: resource, keys: Tin, default_value: Tout", "values: Tout"),
    "TFRA>CuckooHashTableFindWithExists": (
        "table_handle: resource, keys: Tin, default_value: Tout",
        "values: Tout, exists: bool",
    ),
    "TFRA>CuckooHashTableImport": ("table_handle: resource, keys: Tin, values: Tout", ""),
    "TFRA>HkvHashTableOfTensors": ("", "table_handle: resource"),
    "TFRA>HkvHashTableFind": (
        "table_handle: resource, keys: key_dtype, default_value: value_dtype",
        "values: value_dtype",
    ),
    "TFRA>RedisTableOfTensors": ("", "table_handle: resource"),
    "TFRA>RedisTableFind": ("table_handle: resource, keys: Tin, default_value: Tout", "values: Tout"),
    "TFRA>DynamicPartition": ("data: T, partitions: int32", "outputs: num_partitions * T"),
    "TFRA>DynamicStitchFast": ("indices: N * int32, data: N * T", "merged: T"),
    "Nobody>Knows": ("x: T", "y: T"),
}  # fmt: skip


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    return tf


def define_op(name: str, inputs: str, outputs: str) -> Any:
    """Return the OpDef for a line of `OPS`; the first use of an attribute decides whether it is a number."""
    from tensorflow.core.framework import op_def_pb2

    made = op_def_pb2.OpDef(name=name, is_stateful=True)
    attrs: dict[str, str] = {}
    for text, arguments in ((inputs, made.input_arg), (outputs, made.output_arg)):
        for declaration in filter(None, map(str.strip, text.split(","))):
            match = re.fullmatch(r"(\w+): (?:(\w+) \* )?(\[\w+\]|\w+)", declaration)
            assert match, declaration
            argument = arguments.add(name=match[1])
            if match[2]:
                argument.number_attr = match[2]
                attrs.setdefault(match[2], "int")
            if match[3].startswith("["):
                argument.type_list_attr = match[3][1:-1]
                attrs.setdefault(match[3][1:-1], "list(type)")
            elif match[3] in {"resource", "string", "int32", "int64", "float32", "bool", "uint32"}:
                argument.type = _tensorflow().as_dtype(match[3]).as_datatype_enum
            else:
                argument.type_attr = match[3]
                attrs.setdefault(match[3], "type")
    for attribute, kind in attrs.items():
        made.attr.add(name=attribute, type=kind)
    return made


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
        made = self.graph.node.add(name=name, op=op)
        made.input.extend(inputs)
        for key, value in attrs.items():
            is_type = isinstance(value, str) and key not in {"shared_name", "container"}
            made.attr[key].CopyFrom(attr_value(_tensorflow().as_dtype(value) if is_type else value))
        return name

    def const(self, value: Any, name: str = "") -> str:
        tf = _tensorflow()
        array = np.asarray(value)
        proto = tf.make_tensor_proto(value) if array.dtype.kind in "OSU" else tf.make_tensor_proto(array)
        return self.node("Const", name=name, dtype=tf.as_dtype(proto.dtype), value=proto)

    def input(self, key: str, dtype: str = "int64", shape: tuple[int | None, ...] = (None,)) -> str:
        if key not in self.inputs:
            self.inputs[key] = (_tensorflow().as_dtype(dtype), shape)
            self.node("Placeholder", name=key, dtype=dtype, shape=shape)
        return key

    def restored(self, name: str, dtype: Any) -> str:
        """Read a tensor of the checkpoint, in the restore graph."""
        names, slices = self.const([name.encode()]), self.const([b""])
        return self.node("RestoreV2", ["save/Const", names, slices], dtypes=[dtype])

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
        tf = _tensorflow()
        from tensorflow.core.protobuf import saved_model_pb2

        self.node("NoOp", self._restores, "save/restore_all")
        made = saved_model_pb2.SavedModel(saved_model_schema_version=1)
        meta = made.meta_graphs.add()
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
        (path / "saved_model.pb").write_bytes(made.SerializeToString())
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


# ---- DeepRec


def deeprec_table(
    export: Export,
    name: str,
    keys: Array,
    rows: Array,
    *,
    default: Array | None = None,
    random: bool = False,
    slots: Sequence[str] = (),
    saved: dict[str, tuple[Array, Array]] | None = None,
    offsets: bool = True,
    freqs: Array | None = None,
    filtered: Array | None = None,
    partition: tuple[int, int] = (0, 1),
    **attrs: Any,
) -> str:
    """Add an EmbeddingVariable with its initializer, its restore op, and its optimizer slots.

    Parameters
    ----------
    keys, rows : ndarray [n], [n, dim]
    default : ndarray [count, dim]
        Rows that the initializer gives to new keys; by default zeros [4, dim].
    random : bool
        The initializer draws random rows instead.
    saved : dict of name to (keys, rows)
        Content of the checkpoint, if that is not one table of this name.
    attrs
        Attributes of InitializeKvVariableOp.
    """
    dim, tkeys = rows.shape[1], keys.dtype
    matrix = np.zeros((4, dim), np.float32) if default is None else default
    attrs.setdefault("default_value_dim", len(matrix))
    common: dict[str, Any] = {"Tkeys": tkeys, "dtype": "float32", "shape": (dim,)}
    if random:
        shape = export.const(np.array(matrix.shape, np.int32))
        value = export.node(
            "TruncatedNormal", [shape], f"{name}/Initializer/truncated_normal", T="int32", dtype="float32"
        )
    else:
        dims, first = export.const(np.array(matrix.shape, np.int32)), export.const(np.float32(matrix[0, 0]))
        if (matrix == matrix[0, 0]).all():
            value = export.node("Fill", [dims, first], f"{name}/Initializer/fill", T="float32", index_type="int32")
        else:
            value = export.const(matrix, f"{name}/Initializer/const")
    empty = export.const(np.array(-1, tkeys) if tkeys.kind == "i" else b"")
    handles = []
    for variable in (name, *(f"{name}/{slot}" for slot in slots)):
        handles.append(export.node("KvVarHandleOp", name=variable, container="", shared_name=variable, **common))
        self_and_primary = [variable, name]
        export.node(
            "InitializeKvVariableOp", [*self_and_primary, value, empty], f"{variable}/Initialize",
            counter_type="uint64", **common, **attrs,
        )  # fmt: skip
        names = export.const(variable.encode())
        restore = export.node(
            "KvResourceImportV2", ["save/Const", *self_and_primary, value, names, empty], counter_type="uint64",
            partition_id=partition[0], partition_num=partition[1], **common, **attrs,
        )  # fmt: skip
        export.on_restore(restore)
        for stem, (some, values) in (
            saved if saved is not None and variable == name else {variable: (keys, rows)}
        ).items():
            _save_deeprec(export, stem, some, values, offsets, freqs, filtered)
    return handles[0]


def _save_deeprec(
    export: Export, name: str, keys: Array, rows: Array, offsets: bool, freqs: Array | None, filtered: Array | None
) -> None:
    none = np.empty(0, np.int64)
    bucket = keys % 1000 if keys.dtype.kind == "i" else np.zeros(len(keys), np.int64)
    order = np.argsort(bucket, kind="stable")
    export.saved |= {
        f"{name}-keys": keys[order],
        f"{name}-values": rows[order],
        f"{name}-versions": np.arange(len(keys), dtype=np.int64),
        f"{name}-freqs": freqs[order] if freqs is not None else none,
        f"{name}-keys_filtered": filtered if filtered is not None else none,
        f"{name}-versions_filtered": none,
        f"{name}-freqs_filtered": np.ones(len(filtered), np.int64) if filtered is not None else none,
        f"{name}-partition_filter_offset": np.zeros(1001, np.int32),
    }
    if offsets:
        export.saved[f"{name}-partition_offset"] = np.searchsorted(bucket[order], np.arange(1001)).astype(np.int32)


def deeprec_lookup(
    export: Export,
    handle: str,
    ids: str,
    tkeys: Any = "int64",
    *,
    counts: bool = False,
    default: str = "",
    **attrs: Any,
) -> str:
    """Add a KvResourceGather, or V1 with counts; `default` is used if `is_use_default_value_tensor` is set."""
    given = default or export.const(np.float32(0.0))
    common: dict[str, Any] = {
        "Tkeys": tkeys,
        "dtype": "float32",
        "is_use_default_value_tensor": bool(default),
        "validate_indices": True,
    }
    if not counts:
        return export.node("KvResourceGather", [handle, ids, given], **common, **attrs)
    ones = export.const(np.ones(1, np.int32))
    return export.node("KvResourceGatherV1", [handle, ids, given, ones], counts_type="int32", **common, **attrs)


# ---- TFPlus


def tfplus_table(
    export: Export,
    name: str,
    keys: Array,
    rows: Array,
    *,
    op: str = "KvVariableV4",
    blacklist: Sequence[int] = (),
    delete_keys: Sequence[int] = (),
    freqs: tuple[Array, Array] | None = None,
    full: bool = True,
    slots: Sequence[str] = (),
) -> str:
    """Add a KvVariable with the ops that restore it, and its optimizer slots."""
    for variable in (name, *(f"{name}/{slot}" for slot in slots)):
        counted, words = freqs if freqs is not None else (keys[:0], np.empty(0, np.uint32))
        tensors = {
            "keys": keys, "values": rows, "init_table": np.full((5, rows.shape[1]), 0.5, np.float32),
            "blacklist": np.array(blacklist, keys.dtype), "freq_keys": counted, "freq_values": words,
            "need_full_import": np.array(full), "delete_keys": np.array(delete_keys, keys.dtype),
        }  # fmt: skip
        export.saved |= {f"{variable}-{key}": value for key, value in tensors.items()}
        common: dict[str, Any] = {"key_dtype": keys.dtype, "value_dtype": "float32"}
        common |= {"key_shape": (), "value_shape": (rows.shape[1],)}
        extra: dict[str, Any] = {"storage_option": b"mem"} if op == "KvVariableV4" else {}
        export.node(op, name=variable, shared_name=variable, container="", enter_threshold=0, **common, **extra)
        inputs = [export.restored(f"{variable}-{key}", value.dtype) for key, value in tensors.items()]
        export.on_restore(
            export.node("KvVariableFullOrDeltaImport", [variable, *inputs], Tin=keys.dtype, Tout="float32", first_n=8)
        )
    return name


def tfplus_lookup(
    export: Export, handle: str, ids: str, op: str = "KvVariableGatherOrZerosV2", tkeys: Any = "int64"
) -> str:
    more = {"KvVariableGatherV2": [np.array(False)], "KvVariableGatherOrInsertWithCounts": [np.ones(1, np.int32)]}
    inputs = [handle, ids, *(export.const(value) for value in more.get(op, ()))]
    return export.node(op, inputs, dtype="float32", Tindices=tkeys)


# ---- TFRA


def tfra_table(
    export: Export,
    name: str,
    keys: Array,
    rows: Array,
    shard: tuple[int, int] = (0, 1),
    *,
    op: str = "TFRA>CuckooHashTableOfTensors",
    restored: bool = True,
    to_checkpoint: bool = True,
) -> str:
    """Add a shard of a Variable, as TF 1's Saver names it."""
    stem = f"{name.replace('/', '_')}_mht_{shard[0] + 1}of{shard[1]}"
    export.node(
        op, name=stem, shared_name=stem, container="", key_dtype=keys.dtype, value_dtype="float32",
        value_shape=(rows.shape[1],), use_node_name_sharing=False,
    )  # fmt: skip
    if to_checkpoint:
        export.saved |= {f"{stem}-keys": keys, f"{stem}-values": rows}
    if restored:
        inputs = [
            export.restored(f"{stem}-{part}", dtype) for part, dtype in (("keys", keys.dtype), ("values", "float32"))
        ]
        export.on_restore(export.node("TFRA>CuckooHashTableImport", [stem, *inputs], Tin=keys.dtype, Tout="float32"))
    return stem


def tfra_lookup(export: Export, handle: str, ids: str, default: str, tkeys: Any = "int64", exists: bool = False) -> str:
    op = "TFRA>CuckooHashTableFind" + ("WithExists" if exists else "")
    return export.node(op, [handle, ids, default], Tin=tkeys, Tout="float32")


# ---- Expected results of the systems


def rows_for(ids: Sequence[Any], keys: Array, rows: Array, absent: Callable[[Any], Any] = lambda key: 0.0) -> Array:
    """Look ids up one by one: [n, dim]."""
    table = dict(zip(keys.tolist(), rows, strict=True))
    dim = rows.shape[1]
    found = [table.get(key) if key in table else np.broadcast_to(absent(key), dim) for key in ids]
    return np.array(found, np.float32).reshape(-1, dim)


def score_for(rows: Array) -> Array:
    """Compute the score of `Export.finish` from the rows: [n, 1]."""
    result: Array = 1.0 / (1.0 + np.exp(-(rows @ dense_weights(rows.shape[1]))))
    return result
