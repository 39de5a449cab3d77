# SPDX-License-Identifier: Apache-2.0
"""A model as the passes see it: one flat graph, where its weights are, and what its clients rely on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graph_tools.graph import Graph, Output, has_effect
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
        None in it: any size; None: any rank.
    """

    tensor: Output
    dtype: Any
    shape: tuple[int | None, ...] | None


@dataclass
class Signature:
    """A way to call a model.

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
        """Return the value of an input that a request leaves out; None if it must bring it."""
        import numpy as np
        import tensorflow as tf

        return np.asarray(tf.make_ndarray(self.defaults[key])) if key in self.defaults else None


@dataclass
class HashTableContent:
    """What fills a native hash table at load.

    Attributes
    ----------
    keys, values : TensorSource [n], [n, …]
        `values` None: 0, 1, …, n - 1.
    mutable : bool
        The handle is of a MutableHashTable, which is filled by import.
    """

    keys: TensorSource
    values: TensorSource | None
    mutable: bool = False


@dataclass
class Model:
    """Everything that a pass may look at and change.

    Attributes
    ----------
    path : Path
        What the user named.
    kind : str
        `SavedModel (TF 1)`, `SavedModel (TF 2)` or `GraphDef`.
    graph : Graph
    signatures : dict of str to Signature
    variables : dict of str to TensorSource
        By name of the handle node (VarHandleOp, VariableV2): the value that is restored.
    hash_tables : dict of str to HashTableContent
        By name of the handle node: tables whose content is in the checkpoint.
    sparse_tables : dict of str to SparseTable
        By the name that `SparseLookup` gives.
    embedding_tables : dict of str to TableSpec
        By name of the RecEmbeddingTable node: tables in files of their own.
    merged_tables : dict of str to str
        Sparse tables that were parts of another, which has their rows now.
    tensor_names : dict of str to tuple of str
        By handle node: which tensors of the checkpoint it is restored from.
    unused_tensors : dict of str to str
        Tensors of the checkpoint that the result is not made from, with the reason: some as readers know them, all of
        them once `marked_tensors` is set.
    marked_tensors : bool
    removed_functions, removed_assets, removed_signatures : dict of str to str
        What is gone, with the reason.
    table_records : list of TableRecord
        What was found in each table and how it is stored now, as the report has it.
    stored_tables : list of StoredTable
        Which variables and tables each of them is in, so that what was written can be compared with it.
    assets : dict of str to Path
        By name of the constant or placeholder that holds the file's name.
    init : list of str
        Nodes that run once after the restore.
    checkpoint : BundleReader or None
    tags : tuple of str
    extra : Path or None
        The export's `assets.extra`.
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

    def inputs(self) -> set[str]:
        """Return the names of the nodes that clients feed."""
        return {source.tensor.node for signature in self.signatures.values() for source in signature.inputs.values()}

    def outputs(self) -> set[str]:
        """Return the names of the nodes that clients fetch."""
        return {output.tensor.node for signature in self.signatures.values() for output in signature.outputs.values()}

    def roots(self) -> set[str]:
        """Return the names of the nodes that must stay, whatever uses them."""
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
    """Bytes of a file, or of the files below a folder."""
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
