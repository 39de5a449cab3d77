# SPDX-License-Identifier: Apache-2.0
"""Inspect: what an exported model holds, and what of it serving needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graph_tools.analysis.unused_tensors import mark_unused_tensors
from graph_tools.graph import is_native
from graph_tools.graph.op_library import Libraries, is_ours, load_libraries
from graph_tools.json_data import as_data
from graph_tools.model import Endpoint, HashTableContent, Model
from graph_tools.model.tables import SparseTable
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.graph_def import is_graph_def, parse_graph_def
from graph_tools.readers.saved_model import choose_meta_graph, read_proto
from graph_tools.report.cut import disk_bytes
from graph_tools.store import TableSpec
from graph_tools.tensors import TensorSource, byte_size

SCHEMA = "inspect_report/1"
OWN_FAMILY = "recprocessor"


@dataclass
class TensorInfo:
    """An input or output of a signature.

    Attributes
    ----------
    name : str
        Its key.
    tensor : str
        Its name in the graph.
    dtype : str
    shape : list of int or None, or None
        None in it: any size; None: any rank.
    """

    name: str
    tensor: str
    dtype: str
    shape: list[int | None] | None


@dataclass
class SignatureInfo:
    """A signature, its inputs and its outputs."""

    name: str
    method: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


@dataclass
class VariableInfo:
    """A variable.

    Attributes
    ----------
    name : str
        Of its handle node.
    dtype : str
    shape : list of int
    bytes : int
    used : bool
        Whether an output of a signature needs it.
    duplicate_of : str or None
        Another variable with the same content, which the checkpoint holds twice.
    checksums : list of int
        Of its tensor in the checkpoint.
    """

    name: str
    dtype: str
    shape: list[int]
    bytes: int
    used: bool
    duplicate_of: str | None = None
    checksums: list[int] = field(default_factory=list)


@dataclass
class TableInfo:
    """A table that keys are looked up in.

    Attributes
    ----------
    name : str
    family : str
        The system that made it; `tensorflow` for native hash tables, `asset` where a file fills it, `recprocessor` for
        embedding tables in files of their own.
    rows : int or None
        Keys; None: a file says.
    dim : int or None
        Length of a row; None: numbers.
    dtype : str
        Of the values.
    bytes : int
        Of keys and values.
    absent : str
        What an absent key is given: `zero`, `row`, `modulo`, `error`, or `default` where the graph says so at each
        lookup.
    used : bool
    index : str or None
        How rows are found in an embedding table's file: `direct`, `int64` or `string`.
    file : str or None
        Its name in the assets.
    """

    name: str
    family: str
    rows: int | None
    dim: int | None
    dtype: str
    bytes: int
    absent: str
    used: bool
    index: str | None = None
    file: str | None = None


@dataclass
class UnusedTensor:
    """A tensor of the checkpoint that no signature needs, and why not."""

    name: str
    bytes: int
    reason: str


@dataclass
class Inspection:
    """What a model holds.

    Attributes
    ----------
    path, kind : str
    tags : list of str
    bytes : int
        On disk.
    signatures : list of SignatureInfo
    nodes : int
        Of the graph with its calls inlined.
    needed_nodes : int
        Those that an output needs.
    functions : int
    ops : dict of str to int
        Nodes by op, as exported: in the graph and in functions.
    custom_ops : list of str
        Ops that TensorFlow does not have.
    families : list of str
        Training systems whose tables were found.
    variables : list of VariableInfo
    tables : list of TableInfo
    assets : list of {name, bytes}
    unused_tensors : list of UnusedTensor
    """

    path: str
    kind: str
    tags: list[str]
    bytes: int
    signatures: list[SignatureInfo]
    nodes: int
    needed_nodes: int
    functions: int
    ops: dict[str, int]
    custom_ops: list[str]
    families: list[str]
    variables: list[VariableInfo]
    tables: list[TableInfo]
    assets: list[dict[str, Any]]
    unused_tensors: list[UnusedTensor]

    @property
    def needless_bytes(self) -> int:
        """Bytes of tensors that serving does not need: unused ones and copies."""
        copies = sum(one.bytes for one in self.variables if one.used and one.duplicate_of is not None)
        return copies + sum(one.bytes for one in self.unused_tensors)


@dataclass
class InspectReport:
    """Models side by side."""

    models: list[Inspection]

    def to_json(self) -> dict[str, Any]:
        """Return the report as `docs/schemas/inspect_report.schema.json` describes it."""
        data = as_data(self)
        for one, model in zip(data["models"], self.models, strict=True):
            one["needless_bytes"] = model.needless_bytes
        return {"schema": SCHEMA, **data}


def inspect(*models: str | Path, checkpoint: str | Path | None = None, op_library: Libraries = None) -> InspectReport:
    """Look at exported models without changing them.

    Parameters
    ----------
    models : path, ...
        SavedModel folders or GraphDef files.
    checkpoint : path, optional
        Prefix of a checkpoint to take the weights from, or the folder of a system's table files.
    op_library : path, optional
        libprocessor.so, for models with its ops; it is found without where it is installed.

    Raises
    ------
    UnreadableError, UsageError
    """
    load_libraries(op_library)
    return InspectReport([inspect_model(Path(one), checkpoint) for one in models])


def inspect_model(path: Path, checkpoint: str | Path | None = None) -> Inspection:
    """Inspect one model."""
    model = read_model(path, checkpoint=checkpoint)
    ops, functions = exported_ops(model)
    nodes = len(model.graph)
    # Pruning forgets what it removes: what was there is written down before.
    variables, tables, assets = dict(model.variables), _tables(model), sorted(set(model.assets.values()))
    PruneUnreachable().apply(model)
    mark_unused_tensors(model)
    for one in tables:
        one.used = one.name in model.graph or one.name in model.sparse_tables
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
            SignatureInfo(name, one.method_name, _endpoints(one.inputs), _endpoints(one.outputs))
            for name, one in sorted(model.signatures.items())
        ],
        nodes=nodes,
        needed_nodes=len(model.graph),
        functions=functions,
        ops=dict(sorted(ops.items(), key=lambda one: (-one[1], one[0]))),
        custom_ops=sorted(op for op in ops if is_ours(op) or not is_native(op)),
        families=sorted({one.family for one in tables} - {"tensorflow", "asset", OWN_FAMILY}),
        variables=_variables(model, variables),
        tables=tables,
        assets=[{"name": file.name, "bytes": file.stat().st_size} for file in assets],
        unused_tensors=unused,
    )


def exported_ops(model: Model) -> tuple[Counter[str], int]:
    """Count nodes by op as the export has them, functions included but not as ops, and the functions."""
    if is_graph_def(model.path):
        graph_def = parse_graph_def(model.path)
    else:
        graph_def = choose_meta_graph(read_proto(model.path), model.tags, model.path).graph_def
    functions = graph_def.library.function
    names = {one.signature.name for one in functions}
    ops = Counter(node.op for node in graph_def.node)
    for function in functions:
        ops.update(node.op for node in function.node_def)
    return Counter({op: count for op, count in ops.items() if op not in names}), len(functions)


def _endpoints(endpoints: dict[str, Endpoint]) -> list[TensorInfo]:
    return [
        TensorInfo(key, str(one.tensor), one.dtype.name, None if one.shape is None else list(one.shape))
        for key, one in sorted(endpoints.items())
    ]


def _variables(model: Model, variables: dict[str, TensorSource]) -> list[VariableInfo]:
    """Describe variables; of those with one content, a used one is the original, and those of one tensor are one."""
    seen: dict[tuple[Any, ...], tuple[str, tuple[str, ...]]] = {}
    found = []
    for name, tensor in sorted(variables.items(), key=lambda one: (one[0] not in model.graph, one[0])):
        info = VariableInfo(name, _dtype_name(tensor), list(tensor.shape), byte_size(tensor), name in model.graph)
        tensors = model.tensor_names.get(name, ())
        if model.checkpoint is not None and tensors and all(one in model.checkpoint for one in tensors):
            info.checksums = [number for one in tensors for number in model.checkpoint.checksums(one)]
            content = (info.dtype, *info.shape, None, *info.checksums)
            first, its_tensors = seen.setdefault(content, (name, tensors))
            # A handful of zeros is no duplicate worth naming.
            info.duplicate_of = first if its_tensors != tensors and info.bytes >= 1024 else None
        found.append(info)
    return sorted(found, key=lambda one: one.name)


def _dtype_name(tensor: TensorSource) -> str:
    return "string" if tensor.dtype.kind == "O" else tensor.dtype.name


def _tables(model: Model) -> list[TableInfo]:
    found = [_sparse_table(name, one) for name, one in model.sparse_tables.items()]
    found += [_hash_table(name, one) for name, one in model.hash_tables.items()]
    found += [_embedding_table(name, one) for name, one in model.embedding_tables.items()]
    for node in model.graph:
        if "HashTable" in node.op and not node.inputs and node.name not in model.hash_tables:
            value = node.attrs["value_dtype"].type if "value_dtype" in node.attrs else 0
            found.append(TableInfo(node.name, "asset", None, None, _tf_name(value), 0, "default", True))
    return sorted(found, key=lambda one: one.name)


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
    return replace(info, index=spec.index_kind, file=file)


def _hash_table(name: str, content: HashTableContent) -> TableInfo:
    values = content.values
    size = byte_size(content.keys) + (byte_size(values) if values is not None else 0)
    dim = values.shape[1] if values is not None and len(values.shape) > 1 else None
    dtype = _dtype_name(values) if values is not None else "int64"
    return TableInfo(name, "tensorflow", content.keys.shape[0], dim, dtype, size, "default", True)


def _tf_name(number: int) -> str:
    import tensorflow as tf

    return str(tf.as_dtype(number).name) if number else "unknown"


def by_name(things: Iterable[Any]) -> dict[str, Any]:
    """Index what has a name."""
    return {one.name: one for one in things}
