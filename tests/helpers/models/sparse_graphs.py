# SPDX-License-Identifier: Apache-2.0
"""Write SavedModels whose tables are in separate files: Monolith, TensorNet, HugeCTR HPS."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helpers.models import sparse_files
from load_tests.workloads import sparse_exports
from load_tests.workloads.sparse_exports import Export

Row = Sequence[float]

sparse_exports.OPS.update(
    {
        "MonolithDummyHashFilter": ("", "handle: resource"),
        "MonolithDummySyncClient": ("", "handle: resource"),
        "MonolithHashTable": ("filter_handle: resource, sync_client_handle: resource", "handle: resource"),
        "MonolithHashTableRestore": ("handle: resource, basename: string", "output_handle: resource"),
        "MonolithHashTableAssign": (
            "handle: resource, id: int64, value: float32, update_time: int64", "output_handle: resource"
        ),
        "MonolithHashTableLookup": ("table_handle: resource, ids: int64", "embeddings: float32"),
        "MonolithHashTableFusedLookup": (
            "table_handles: N * resource, ids: int64, fused_slot_size: int32, req_time: int64",
            "embeddings: float32, embedding_splits: int32, id_offsets: int32, embedding_offsets: int32, indices: int64",
        ),
        "CreateMonolithMultiHashTable": (
            "config: string, filter_handle: resource, sync_client_handle: resource", "multi_hash_table_handle: resource"
        ),
        "ReadMonolithMultiHashTable": ("", "multi_hash_table_handle: resource"),
        "MonolithMultiHashTableRestore": ("mtable: resource, basename: string", "output_mtable: resource"),
        "MonolithMultiHashTableLookup": ("mtable: resource, id: int64, id_split: int64", "embedding: float32"),
        "MonolithMultiHashTableFusedLookup": (
            "mtable: resource, ids: int64, fused_slot_size: int32",
            "embeddings: float32, embedding_splits: int32, id_offsets: int32, embedding_offsets: int32",
        ),
        "MonolithSplitByIndices": ("indices: int64, input: T", "splitted: num_splits * T"),
        "MonolithMapIdToEmbedding": (
            "ids: num_splits * int64, embeddings: num_splits * float32, input: int64", "output: float32"
        ),
        "MonolithTensorsTimestamp": ("tensors_in: [T]", "tensors_out: [T], timestamp: int64"),
        "MonolithUniqueKeyWithValueAndOffset": (
            "key: int64, key_split: int64",
            "unique_key: int64, unique_key_split: int64, value_offset: int64, value_offset_split: int64, "
            "value_buffer: resource",
        ),
        "MonolithRaggedSplitByIndices": (
            "indices: int64, num: int64, num_split: int64",
            "splitted_nums: num_splits * int64, splitted_num_splits: num_splits * int64, "
            "splitted_pos: num_splits * int64",
        ),
        "MonolithFillWithOffsetMap": (
            "pos: int64, pos_split: int64, value: float32, value_offset_map: int64, value_offset_map_split: int64, "
            "value_buffer: resource",
            "out_value_buffer: resource",
        ),
        "MonolithFinalizeSharedTensor": ("handle: num_tensors * resource", "t: dtype"),
        "TfServingRemotePredict": (
            "input_tensor_aliases: string, input_tensors: [T], output_tensor_aliases: string",
            "status_code: int32, status_error_message: string, output_tensors: [output_types]",
        ),
        "SparseTablePull": ("resources: N * resource, values: N * int64", "mapped_values: N * int64"),
        "Init": ("global_replica_id: int32, num_replicas_in_sync: int32, visible_devices: int32", "status: string"),
        "Lookup": (
            "values: value_dtype, global_replica_id: int32, init_status: status_dtype", "emb_vector: dtype"
        ),
    }
)  # fmt: skip


def add_signature(path: Path, name: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Add a signature to a SavedModel; all tensors are vectors, of int64 except those named `…value`."""
    import tensorflow as tf

    def change(meta: Any) -> None:
        signature = meta.signature_def[name]
        signature.method_name = "tensorflow/serving/predict"
        for given, target in ((inputs, signature.inputs), (outputs, signature.outputs)):
            for key, tensor in given.items():
                target[key].name = tensor if ":" in tensor else f"{tensor}:0"
                floats = given is outputs or key.endswith("value")
                target[key].dtype = (tf.float32 if floats else tf.int64).as_datatype_enum
                target[key].tensor_shape.unknown_rank = True

    _edit(path, change)


def _edit(path: Path, change: Any) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    made = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    change(made.meta_graphs[0])
    (path / "saved_model.pb").write_bytes(made.SerializeToString())


# ---- Monolith


def monolith_config(dim: int, compressor: str = "", serving: bool = True) -> bytes:
    """Return an EmbeddingHashTableConfig with two segments, or with one if dim is 1."""

    def field(number: int, content: bytes | int) -> bytes:
        if isinstance(content, int):
            assert content < 128
            return bytes([number << 3, content])
        return bytes([number << 3 | 2, len(content)]) + content

    compression = field({"": 1, "fp16": 2, "fixed_r8": 3, "one_bit": 4}[compressor], b"")
    lengths = [dim - 1, 1] if dim > 1 else [dim]
    segments = b"".join(field(1, field(3, compression) + field(7, length)) for length in lengths)
    return field(1, segments + field(2, 2 if serving else 1)) + field(5, b"")


def monolith_configs(dims: Mapping[str, int]) -> bytes:
    names = b"".join(bytes([0x0A, len(name)]) + name.encode() for name in dims)
    configs = [monolith_config(dim) for dim in dims.values()]
    return names + b"".join(bytes([0x12, len(config)]) + config for config in configs)


class MonolithExport(Export):
    """Build a SavedModel with Monolith's tables, whose dumps are assets, restored by the main op."""

    def __init__(self) -> None:
        super().__init__()
        self.dumps: list[tuple[str, list[list[bytes]]]] = []
        self.main: list[str] = []
        self.base = self.const("./", "ASSET_BASE")
        self.helpers = [self.node("MonolithDummyHashFilter"), self.node("MonolithDummySyncClient")]

    def table(
        self,
        name: str,
        shards: Sequence[Mapping[int, Row]],
        *,
        dim: int,
        config: bytes | None = None,
        files: bool = True,
    ) -> str:
        """Add a table named `MonolithHashTable_<name>`, its dump and its restore."""
        shared = f"MonolithHashTable_{name}"
        config = monolith_config(dim) if config is None else config
        handle = self.node("MonolithHashTable", self.helpers, shared, shared_name=shared, config=config)
        path = self.node("StringJoin", [self.base, self.const(shared)], N=2, separator=b"")
        self.main.append(self.node("MonolithHashTableRestore", [handle, path]))
        if files:
            self.dumps.append((shared, [_entries(shard) for shard in shards]))
        return handle

    def multi_table(
        self, name: str, tables: Mapping[str, Mapping[int, Row]], dims: Mapping[str, int], dumped: Sequence[str] = ()
    ) -> str:
        """Add a table of tables named `MonolithMultiHashTable_<name>`, all in one dump of one shard."""
        shared = f"MonolithMultiHashTable_{name}"
        config = self.const(monolith_configs(dims))
        create = self.node("CreateMonolithMultiHashTable", [config, *self.helpers], shared_name=shared)
        handle = self.node("ReadMonolithMultiHashTable", name=shared, shared_name=shared)
        path = self.node("StringJoin", [self.base, self.const(shared)], N=2, separator=b"")
        self.main.append(self.node("MonolithMultiHashTableRestore", [handle, path, f"^{create}"]))
        kept = {key: rows for key, rows in tables.items() if not dumped or key in dumped}
        self.dumps.append((shared, [[entry for rows in kept.values() for entry in _entries(rows)]]))
        counts = [sparse_files.monolith_metadata(key, len(rows)) for key, rows in kept.items()]
        self.dumps.append((f"{shared}.meta", [counts]))
        return handle

    def lookup(self, handle: str, ids: str, dim: int) -> str:
        return self.node("MonolithHashTableLookup", [handle, ids], dim_size=dim, use_multi_threads=False)

    def multi_lookup(self, handle: str, ids: str, splits: str) -> str:
        return self.node("MonolithMultiHashTableLookup", [handle, ids, splits])

    def write(self, path: Path, outputs: dict[str, str]) -> Path:
        self.variable("global_step", np.array([3], np.int64))
        main = self.node("NoOp", [f"^{node}" for node in self.main], "restore_tables")
        super().write(path, outputs)
        (path / "assets").mkdir()
        for prefix, shards in self.dumps:
            sparse_files.write_monolith(path / "assets", prefix, shards)
        files = sorted(file.name for file in (path / "assets").iterdir())

        def change(meta: Any) -> None:
            meta.collection_def["saved_model_main_op"].node_list.value.append(main)
            for name, tensor in [("./", self.base), *((file, f"asset_{i}") for i, file in enumerate(files))]:
                meta.asset_file_def.add(filename=name).tensor_info.name = f"{tensor}:0"
                if tensor != self.base:
                    meta.graph_def.node.add(name=tensor, op="Const").attr["dtype"].type = 7

        _edit(path, change)
        return path


def _entries(rows: Mapping[int, Row]) -> list[bytes]:
    return [sparse_files.monolith_entry(key, row, norm=[0.5] * len(row), time=1) for key, row in rows.items()]


def remote(export: Export, server: int, signature: str, inputs: Mapping[str, str], outputs: Sequence[str]) -> str:
    """Add a call of a parameter server; the results are outputs 2, 3, … of the node."""
    ends = [export.const([name.encode() for name in names]) for names in (list(inputs), list(outputs))]
    types, floats = [np.dtype(np.int64)] * len(inputs), [np.dtype(np.float32)] * len(outputs)
    return export.node(
        "TfServingRemotePredict", [ends[0], *inputs.values(), ends[1]], T=types, output_types=floats, model_version=-1,
        old_model_name=f"ps_{server}".encode(), model_name=f"model:ps_{server}".encode(), task=server,
        signature_name=signature.encode(),
    )  # fmt: skip


def split_by_server(export: Export, ids: str, servers: int, unique: bool = True) -> list[str]:
    """Make ids distinct and split them by `id mod servers`."""
    asked = export.node("Unique", [ids], T="int64", out_idx="int32") if unique else ids
    number = export.node("FloorMod", [asked, export.const(np.int64(servers))], T="int64")
    split = export.node("MonolithSplitByIndices", [number, asked], num_splits=servers, T="int64")
    return [f"{split}:{i}" for i in range(servers)]


def from_servers(export: Export, ids: Sequence[str], rows: Sequence[str], wanted: str) -> str:
    inputs = [*ids, *rows, wanted]
    return export.node("MonolithMapIdToEmbedding", inputs, num_splits=len(ids), use_multi_threads=True)


# ---- TensorNet


def tensornet_blocks(rows: Mapping[int, Row], ranks: int = 2) -> list[list[bytes]]:
    """Distribute signs over ranks and eight blocks, as text."""
    dim = len(next(iter(rows.values())))
    spread: list[list[list[str]]] = [[[] for _ in range(8)] for _ in range(ranks)]
    for sign, row in rows.items():
        spread[sign % ranks][sign // ranks % 8].append(sparse_files.tensornet_adagrad_line(sign, row))
    return [[sparse_files.tensornet_text("AdaGrad", dim, lines) for lines in blocks] for blocks in spread]


def tensornet_pull(export: Export, handle: int, variables: Sequence[str], values: Sequence[str], name: str = "") -> str:
    return export.node("SparseTablePull", [*variables, *values], name, table_handle=handle, N=len(variables))


def tensornet_variable(export: Export, name: str, rows: int, dim: int) -> str:
    """Add the variable that pulls write to; its saved value has no meaning."""
    export.variable(name, np.full((rows, dim), 123.0, np.float32))
    return name


def tensornet_gather(export: Export, variable: str, ids: str, pull: str) -> str:
    return export.node(
        "ResourceGather", [variable, ids, f"^{pull}"], dtype="float32", Tindices="int64", batch_dims=0,
        validate_indices=True,
    )  # fmt: skip


# ---- HugeCTR HPS


def hps_configuration(path: Path, models: Mapping[str, Sequence[tuple[str, str, int, float]]], **others: Any) -> None:
    """Write a server's configuration: for each model, its tables as (name, folder, dim, default)."""
    listed = []
    for model, tables in models.items():
        names, folders, dims, defaults = ([*column] for column in zip(*tables, strict=True))
        listed.append(
            {
                "model": model, "sparse_files": folders, "embedding_table_names": names,
                "embedding_vecsize_per_table": dims, "default_value_for_each_table": defaults,
                "maxnum_catfeature_query_per_table_per_sample": [4] * len(dims), "deployed_device_list": [0],
                "max_batch_size": 64, "gpucache": True,
            }
        )  # fmt: skip
    path.write_text(json.dumps({"supportlonglong": True, "models": listed} | others))


def hps_init(export: Export, config: str) -> str:
    devices = export.const(np.array([0], np.int32))
    zero, one = export.const(np.int32(0)), export.const(np.int32(1))
    return export.node("Init", [zero, one, devices], ps_config_file=config.encode(), global_batch_size=16)


def hps_lookup(
    export: Export, status: str, values: str, model: str, number: int, dim: int, dtype: str = "int64"
) -> str:
    replica = export.const(np.int32(0))
    return export.node(
        "Lookup", [values, replica, status], model_name=model.encode(), table_id=number, emb_vec_size=dim,
        dtype="float32", value_dtype=dtype, status_dtype="string",
    )  # fmt: skip


def moved(source: Path, target: Path) -> Path:
    """Move a folder, as if an export is copied to another machine."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)
    return target
