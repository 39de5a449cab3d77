# SPDX-License-Identifier: Apache-2.0
"""Read DeepRec's EmbeddingVariable: tables whose handle is a KvVarHandleOp and whose rows are in the TF checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Node, attribute
from graph_tools.model import Model
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.readers.families.computed import NotConstantError, computed_value
from graph_tools.readers.families.deeprec_handles import Handles, Setter
from graph_tools.readers.families.lookups import handle_node, replace_by_lookup, served_nodes
from graph_tools.readers.families.partitions import parts_of
from graph_tools.readers.families.saved import KEYS, VALUES, checkpoint_of, drop, numpy_type, row_length, tensor
from graph_tools.tables.absent_keys import how_to_choose, is_set
from graph_tools.tables.checks import check_shapes, same_key_set
from graph_tools.tensors import Array

LOOKUPS = {"KvResourceGather", "KvResourceGatherV1"}
FUSED = {
    "FusedEmbeddingSparsePreLookUp",
    "FusedEmbeddingSparsePostLookUp",
    "FusedEmbeddingSparsePostLookUpV2",
    "FusedEmbeddingLocalSparseLookUp",
    "GroupEmbeddingVarLookup",
    "GroupEmbeddingVarLookupDense",
}

_OTHERS = {
    "-freqs": "frequencies, which only --min-frequency looks at",
    "-versions": "steps of the last update, for eviction in training",
    "-keys_filtered": "keys that were not admitted: a lookup gives them what absent keys get",
    "-freqs_filtered": "frequencies of keys that were not admitted",
    "-versions_filtered": "steps of keys that were not admitted",
    "-partition_offset": "where the parts of the keys begin",
    "-partition_filter_offset": "where the parts of the filtered keys begin",
}


class DeepRec:
    """Reads EmbeddingVariables.

    Before: `KvVarHandleOp, indices, default → KvResourceGather → rows`.

    After: `indices → SparseLookup → rows`, and a SparseTable for each handle.

    Notes
    -----
    An absent key has row `key % default_value_dim` of the matrix that initializes the variable. With an admission
    filter (`filter_freq`), an absent key is a key that was not admitted and has `default_value_no_permission`. Hash
    embeddings of the Q-R kind are plain variables and need no conversion here.
    """

    name = "DeepRec EmbeddingVariable"

    def matches(self, model: Model) -> bool:
        return bool(served_nodes(model, LOOKUPS | FUSED))

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        for node in served_nodes(model, FUSED):
            raise ConversionError(
                f"node '{node.name}': the fused lookup {node.op} of DeepRec, expected KvResourceGather; export the "
                f"model with embedding_lookup_sparse and without fused or grouped lookups"
            )
        handles = Handles(model)
        lookups: dict[str, list[Node]] = {}
        for node in served_nodes(model, LOOKUPS):
            handle = handle_node(model.graph, node.inputs[0])
            if handle.name not in handles:
                raise ConversionError(f"node '{handle.name}': {handle.op} found, expected the handle of a lookup")
            lookups.setdefault(handle.name, []).append(node)
        for name, nodes in lookups.items():
            table = _read_table(model, handles, model.graph[name], nodes, absent)
            for node in nodes:
                own = attribute(node, "is_use_default_value_tensor", False) and not is_set(absent, table.name)
                replace_by_lookup(model, node, table, node.inputs[1], node.inputs[2] if own else None)


def _read_table(
    model: Model, handles: Handles, handle: Node, lookups: list[Node], absent: dict[str, str]
) -> SparseTable:
    bundle = checkpoint_of(model, handle)
    name = handles.saved_name(handle)
    dim, dtype = row_length(handle, "shape"), numpy_type(handle, "dtype")
    parts, tensors = parts_of(bundle, name, handle, handles.part_count(name))
    if all(attribute(node, "is_use_default_value_tensor", False) for node in lookups):
        value = Absent(None, "DeepRec: every lookup gives its own default (is_use_default_value_tensor)")
    elif is_set(absent, name):
        value = Absent(None, "--absent-key")
    else:
        inference = any(attribute(node, "is_inference", False) for node in lookups)
        value = _absent(model, handles.setters(handle), name, dim, dtype, inference)
    table = SparseTable(name, "deeprec", numpy_type(handle, "Tkeys"), dim, dtype, parts, value)
    check_shapes(table, may_be_empty=True)
    if value.rows is not None and len(value.rows) > 1 and table.key_dtype.kind == "O":
        raise ConversionError(
            f"table '{name}': string keys and {len(value.rows)} default rows, expected rows that do not depend on the "
            f"key; choose one with {how_to_choose(name)}"
        )
    model.sparse_tables[name] = table
    model.tensor_names[name] = tuple(tensors)
    for table_name in (saved.removesuffix(KEYS) for saved in tensors if saved.endswith(KEYS)):
        for suffix, reason in _OTHERS.items():
            drop(model, table, table_name + suffix, reason)
    for slot in handles.slots(handle, name):
        _drop_slot(model, table, slot)
    return table


def _absent(model: Model, setters: list[Setter], name: str, dim: int, dtype: np.dtype[Any], inference: bool) -> Absent:
    """Return the value that the source uses for absent keys."""
    if not setters:
        raise ConversionError(
            f"table '{name}': no InitializeKvVariableOp or KvResourceImportV2 for it in the graph, expected one that "
            f"says what absent keys get; choose it with {how_to_choose(name)}"
        )
    node = setters[0].node
    filtered = attribute(node, "filter_freq", 0)
    if filtered > 1 or (filtered and inference):
        given = float(attribute(node, "default_value_no_permission", 0.0))
        row = np.full((1, dim), given, dtype) if given else None
        return Absent(row, f"DeepRec: default_value_no_permission {given:g} (filter_freq {filtered})")
    try:
        matrix = computed_value(model, setters[0].value)
    except NotConstantError as error:
        raise ConversionError(
            f"table '{name}': absent keys get rows that the export does not contain ({error}), expected a constant "
            f"initializer; choose their value with {how_to_choose(name)}"
        ) from error
    return Absent(_default_rows(matrix, node, name, dim, dtype), f"DeepRec: initial value of '{node.name}'")


def _default_rows(matrix: Array, setter: Node, name: str, dim: int, dtype: np.dtype[Any]) -> Array | None:
    """Return the rows of absent keys: None for zeros, one row, or one for each remainder of the key."""
    wanted = int(attribute(setter, "default_value_dim", 4096)) if setter.op != "KvResourceImport" else 1
    rows = np.asarray(matrix, dtype)
    if rows.size % dim or (rows.size // dim not in (1, wanted)):
        raise UnreadableError(
            f"table '{name}': initial value of shape {list(rows.shape)}, expected [{wanted}, {dim}] "
            f"(default_value_dim of '{setter.name}')"
        )
    rows = rows.reshape(-1, dim)
    if not rows.any():
        return None
    return rows[:1] if (rows == rows[0]).all() else rows


def _drop_slot(model: Model, table: SparseTable, slot: str) -> None:
    """Record the tensors of a slot as dropped, after checking that it has the table's keys."""
    keys = tensor(model.checkpoint, slot + KEYS)
    if not same_key_set([part.keys for part in table.parts], keys):
        raise UnreadableError(
            f"{model.checkpoint.index}: slot '{slot}' has other keys than table '{table.name}' ({keys.shape[0]} and "
            f"{table.count}), expected the same"
        )
    for suffix in (KEYS, VALUES, *_OTHERS):
        drop(model, table, slot + suffix, f"optimizer slot of '{table.name}'")
