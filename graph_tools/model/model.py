# SPDX-License-Identifier: Apache-2.0
"""A model as the passes see it: one flat graph, the sources of its weights, and its interface for clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graph_tools.graph import Graph, Output, has_effect
from graph_tools.live import Formulas
from graph_tools.model.stored_table import StoredTable
from graph_tools.model.table_record import TableRecord
from graph_tools.model.tables import SparseTable
from graph_tools.store.spec import TableSpec
from graph_tools.tensors import Array, TensorSource


@dataclass(frozen=True)
class Endpoint:
    """An input or output of a signature.

    Attributes
    ----------
    tensor : Output
    dtype : TensorFlow dtype
    shape : tuple of int or None, or None
        None in a shape is any size; None instead of a shape is any rank.
    """

    tensor: Output
    dtype: Any
    shape: tuple[int | None, ...] | None


@dataclass
class Signature:
    """One interface to call a model.

    Attributes
    ----------
    inputs, outputs : dict of str to Endpoint
    method_name : str
    defaults : dict of str to TensorProto
        Values of inputs that a request may leave out, by key.
    """

    inputs: dict[str, Endpoint]
    outputs: dict[str, Endpoint]
    method_name: str = "tensorflow/serving/predict"
    defaults: dict[str, Any] = field(default_factory=dict)

    def default(self, key: str) -> Array | None:
        """Return the value of an input that a request omits; None if the request must have the input."""
        import numpy as np
        import tensorflow as tf

        return np.asarray(tf.make_ndarray(self.defaults[key])) if key in self.defaults else None


@dataclass
class HashTableContent:
    """The content with which a native hash table is filled at load.

    Attributes
    ----------
    keys, values : TensorSource [n], [n, …]
        `values` None: 0, 1, …, n - 1.
    mutable : bool
        Whether the handle is that of a MutableHashTable, which is filled by import.
    """

    keys: TensorSource
    values: TensorSource | None
    mutable: bool = False


@dataclass
class Model:
    """Everything that a pass may read and change.

    Attributes
    ----------
    path : Path
        The path that the user gave.
    kind : str
        `SavedModel (TF 1)`, `SavedModel (TF 2)` or `GraphDef`.
    graph : Graph
    signatures : dict of str to Signature
    variables : dict of str to TensorSource
        The value that is restored, by the name of the handle node (VarHandleOp, VariableV2).
    hash_tables : dict of str to HashTableContent
        Tables whose content is in the checkpoint, by the name of the handle node.
    sparse_tables : dict of str to SparseTable
        Sparse tables, by their name in `SparseLookup`.
    embedding_tables : dict of str to TableSpec
        Tables in files of their own, by the name of the RecEmbeddingTable node.
    merged_tables : dict of str to str
        Sparse tables that were parts of another table, which now has their rows.
    tensor_names : dict of str to tuple of str
        The tensors of the checkpoint from which a handle is restored, by handle node.
    unused_tensors : dict of str to str
        Tensors of the checkpoint from which nothing in the result is made, with the reason: first only those that
        readers find, and all of them once `marked_tensors` is set.
    marked_tensors : bool
    removed_functions, removed_assets, removed_signatures : dict of str to str
        Removed objects, with the reason.
    table_records : list of TableRecord
        The content and the storage of each table, for the report.
    stored_tables : list of StoredTable
        The variables and tables in which each table is stored, to compare the written artifact with the original.
    assets : dict of str to Path
        Files, by the name of the constant or placeholder that contains the file's name.
    init : list of str
        Nodes that run once after the restore.
    checkpoint : BundleReader or None
    tags : tuple of str
    extra : Path or None
        The export's `assets.extra`.
    changed : bool
        Whether the weights are no longer those in the files, since the changes of a timeline lie over them.
    live : Formulas or None
        None: the values of variables do not change. Otherwise, variables that a trainer may change are `LiveTensor`.
    """

    path: Path
    kind: str
    graph: Graph
    signatures: dict[str, Signature]
    variables: dict[str, TensorSource] = field(default_factory=dict)
    hash_tables: dict[str, HashTableContent] = field(default_factory=dict)
    sparse_tables: dict[str, SparseTable] = field(default_factory=dict)
    embedding_tables: dict[str, TableSpec] = field(default_factory=dict)
    merged_tables: dict[str, str] = field(default_factory=dict)
    tensor_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unused_tensors: dict[str, str] = field(default_factory=dict)
    marked_tensors: bool = False
    removed_functions: dict[str, str] = field(default_factory=dict)
    removed_assets: dict[str, str] = field(default_factory=dict)
    removed_signatures: dict[str, str] = field(default_factory=dict)
    table_records: list[TableRecord] = field(default_factory=list)
    stored_tables: list[StoredTable] = field(default_factory=list)
    assets: dict[str, Path] = field(default_factory=dict)
    init: list[str] = field(default_factory=list)
    checkpoint: Any = None
    tags: tuple[str, ...] = ("serve",)
    extra: Path | None = None
    changed: bool = False
    live: Formulas | None = None

    def inputs(self) -> set[str]:
        """Return the names of the nodes that clients feed."""
        return {source.tensor.node for signature in self.signatures.values() for source in signature.inputs.values()}

    def outputs(self) -> set[str]:
        """Return the names of the nodes that clients fetch."""
        return {output.tensor.node for signature in self.signatures.values() for output in signature.outputs.values()}

    def roots(self) -> set[str]:
        """Return the names of the nodes that must stay even if nothing uses them."""
        return self.inputs() | self.outputs() | set(self.init) | (set(self.assets) & set(self.graph.nodes))

    def written_variables(self) -> set[str]:
        """Return the names of the handles that a node of the graph may write while the model is served.

        A loop that only reads does not count.
        """
        return {
            source.node
            for node in self.graph
            if has_effect(self.graph, node)
            for source in node.inputs
            if self.graph[source.node].op in {"VarHandleOp", "VariableV2", "Variable"}
        }


def disk_bytes(path: Path) -> int:
    """Return the size of a file, or of all files below a folder [bytes]."""
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
