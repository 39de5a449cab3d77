# SPDX-License-Identifier: Apache-2.0
"""Inspect: list the contents of an exported model, and which of them serving needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from graph_tools.analysis.unused_tensors import mark_unused_tensors
from graph_tools.graph import is_native
from graph_tools.graph.op_library import Libraries, is_ours, load_libraries
from graph_tools.model import Endpoint, HashTableContent, Model, disk_bytes
from graph_tools.model.table_record import UnusedTensor
from graph_tools.model.tables import SparseTable
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.graph_def import is_graph_def, parse_graph_def
from graph_tools.readers.saved_model import choose_meta_graph, read_proto
from graph_tools.report.inspect import (
    AssetInfo,
    Inspection,
    InspectReport,
    SignatureInfo,
    TableInfo,
    TensorInfo,
    VariableInfo,
)
from graph_tools.store import TableSpec
from graph_tools.tensors import TensorSource, byte_size

OWN_FAMILY = "recprocessor"


def inspect(*models: str | Path, checkpoint: str | Path | None = None, op_library: Libraries = None) -> InspectReport:
    """Inspect exported models without changing them.

    Parameters
    ----------
    models : path, ...
        SavedModel folders or GraphDef files.
    checkpoint : path, optional
        Prefix of a checkpoint with the weights, or the folder with the table files of a training system.
    op_library : path, optional
        libprocessor.so, for models with its ops; if it is installed, it is found without this option.

    Raises
    ------
    UnreadableError, UsageError
    """
    load_libraries(op_library)
    return InspectReport([inspect_model(Path(model), checkpoint) for model in models])


def inspect_model(path: Path, checkpoint: str | Path | None = None) -> Inspection:
    """Inspect one model."""
    model = read_model(path, checkpoint=checkpoint)
    ops, functions = exported_ops(model)
    nodes = len(model.graph)
    # Pruning also drops variables, tables and assets from the model, so list them before.
    variables, tables, assets = dict(model.variables), _tables(model), sorted(set(model.assets.values()))
    PruneUnreachable().apply(model)
    mark_unused_tensors(model)
    for table in tables:
        table.used = table.name in model.graph or table.name in model.sparse_tables
    unused = [
        UnusedTensor(name, model.checkpoint.byte_size(name), reason)
        for name, reason in sorted(model.unused_tensors.items())
    ]
    return Inspection(
        path=str(path),
        kind=model.kind,
        tags=list(model.tags),
        bytes=disk_bytes(path),
        signatures=[
            SignatureInfo(name, item.method_name, _endpoints(item.inputs), _endpoints(item.outputs))
            for name, item in sorted(model.signatures.items())
        ],
        nodes=nodes,
        needed_nodes=len(model.graph),
        functions=functions,
        ops=dict(sorted(ops.items(), key=lambda item: (-item[1], item[0]))),
        custom_ops=sorted(op for op in ops if is_ours(op) or not is_native(op)),
        families=sorted({table.family for table in tables} - {"tensorflow", "asset", OWN_FAMILY}),
        variables=_variables(model, variables),
        tables=tables,
        assets=[AssetInfo(file.name, file.stat().st_size) for file in assets],
        unused_tensors=unused,
    )


def exported_ops(model: Model) -> tuple[Counter[str], int]:
    """Return the number of nodes per op as exported, and the number of functions.

    Nodes inside functions count, but calls of functions do not count as ops.
    """
    if is_graph_def(model.path):
        graph_def = parse_graph_def(model.path)
    else:
        graph_def = choose_meta_graph(read_proto(model.path), model.tags, model.path).graph_def
    functions = graph_def.library.function
    names = {function.signature.name for function in functions}
    ops = Counter(node.op for node in graph_def.node)
    for function in functions:
        ops.update(node.op for node in function.node_def)
    return Counter({op: count for op, count in ops.items() if op not in names}), len(functions)


def _endpoints(endpoints: dict[str, Endpoint]) -> list[TensorInfo]:
    return [
        TensorInfo(key, str(item.tensor), item.dtype.name, None if item.shape is None else list(item.shape))
        for key, item in sorted(endpoints.items())
    ]


def _variables(model: Model, variables: dict[str, TensorSource]) -> list[VariableInfo]:
    """Describe the variables.

    If several have the same content, a used one is called the original. Variables that share one tensor are not
    duplicates.
    """
    seen: dict[tuple[Any, ...], tuple[str, tuple[str, ...]]] = {}
    found = []
    for name, tensor in sorted(variables.items(), key=lambda item: (item[0] not in model.graph, item[0])):
        info = VariableInfo(name, _dtype_name(tensor), list(tensor.shape), byte_size(tensor), name in model.graph)
        tensors = model.tensor_names.get(name, ())
        if model.checkpoint is not None and tensors and all(tensor_name in model.checkpoint for tensor_name in tensors):
            info.checksums = [number for tensor_name in tensors for number in model.checkpoint.checksums(tensor_name)]
            content = (info.dtype, *info.shape, None, *info.checksums)
            first, its_tensors = seen.setdefault(content, (name, tensors))
            # A few equal bytes, such as zeros, are not a duplicate worth reporting.
            info.duplicate_of = first if its_tensors != tensors and info.bytes >= 1024 else None
        found.append(info)
    return sorted(found, key=lambda variable: variable.name)


def _dtype_name(tensor: TensorSource) -> str:
    return "string" if tensor.dtype.kind == "O" else tensor.dtype.name


def _tables(model: Model) -> list[TableInfo]:
    found = [_sparse_table(name, table) for name, table in model.sparse_tables.items()]
    found += [_hash_table(name, hash_table) for name, hash_table in model.hash_tables.items()]
    found += [_embedding_table(name, embedding_table) for name, embedding_table in model.embedding_tables.items()]
    for node in model.graph:
        known = node.name in model.hash_tables or node.name in model.sparse_tables
        if "HashTable" in node.op and not node.inputs and not known:
            value = node.attrs["value_dtype"].type if "value_dtype" in node.attrs else 0
            found.append(TableInfo(node.name, "asset", None, None, _tf_name(value), 0, "default", True))
    return sorted(found, key=lambda table: table.name)


def _sparse_table(name: str, table: SparseTable) -> TableInfo:
    dtype = "string" if table.dtype.kind == "O" else table.dtype.name
    return TableInfo(name, table.family, table.count, table.dim, dtype, table.source_bytes, table.absent.kind, True)


def _embedding_table(name: str, spec: TableSpec) -> TableInfo:
    count = spec.default_rows.shape[0] if spec.default_rows is not None else 0
    absent = {"zeros": "zero", "error": "error", "default": "row" if count == 1 else "modulo"}[spec.absent_key]
    keys = spec.rows if spec.keys is None else spec.keys
    size = spec.file.stat().st_size if spec.file is not None else byte_size(spec.rows)
    file = spec.file.name if spec.file is not None else None
    info = TableInfo(name, OWN_FAMILY, keys.shape[0], spec.dim, spec.row_type, size, absent, True)
    return replace(info, index=spec.index_kind, file=file, narrow=list(spec.narrow))


def _hash_table(name: str, content: HashTableContent) -> TableInfo:
    values = content.values
    size = byte_size(content.keys) + (byte_size(values) if values is not None else 0)
    dim = values.shape[1] if values is not None and len(values.shape) > 1 else None
    dtype = _dtype_name(values) if values is not None else "int64"
    return TableInfo(name, "tensorflow", content.keys.shape[0], dim, dtype, size, "default", True)


def _tf_name(number: int) -> str:
    import tensorflow as tf

    return str(tf.as_dtype(number).name) if number else "unknown"


def by_name(items: Iterable[Any]) -> dict[str, Any]:
    """Return a dict of the items by name."""
    return {item.name: item for item in items}
