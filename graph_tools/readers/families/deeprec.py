# SPDX-License-Identifier: Apache-2.0
"""DeepRec's EmbeddingVariable: tables whose handle is a KvVarHandleOp and whose rows are in the TF checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Node, Output, attribute
from graph_tools.model import Model
from graph_tools.readers.absent_keys import how_to_choose, is_set
from graph_tools.readers.checks import check_shapes, same_key_set
from graph_tools.readers.families.constants import NotConstantError, constant_value
from graph_tools.readers.families.lookups import handle_node, replace_by_lookup, served
from graph_tools.readers.families.partitions import PART, parts_of
from graph_tools.readers.families.saved import (
    KEYS,
    VALUES,
    checkpoint_of,
    drop,
    find_saved,
    numpy_type,
    row_length,
    tensor,
)
from graph_tools.tables.table import Absent, SparseTable

HANDLE = "KvVarHandleOp"
LOOKUPS = {"KvResourceGather", "KvResourceGatherV1"}
FUSED = {
    "FusedEmbeddingSparsePreLookUp",
    "FusedEmbeddingSparsePostLookUp",
    "FusedEmbeddingSparsePostLookUpV2",
    "FusedEmbeddingLocalSparseLookUp",
    "GroupEmbeddingVarLookup",
    "GroupEmbeddingVarLookupDense",
}
# Input that is the table's handle, input that is the handle of the variable whose slot it may be, input with the rows
# for new keys.
_SETTERS = {"InitializeKvVariableOp": (0, 1, 2), "KvResourceImportV2": (1, 2, 3), "KvResourceImport": (0, 0, 1)}

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
    A key that is absent is given row `key % default_value_dim` of the matrix that initialises the variable; with an
    admission filter (`filter_freq`) it is a key that was not admitted and gets `default_value_no_permission`. Hash
    embeddings of the Q-R kind are plain variables and need nothing here.
    """

    name = "DeepRec EmbeddingVariable"

    def matches(self, model: Model) -> bool:
        return bool(served(model, LOOKUPS | FUSED))

    def normalise(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        for node in served(model, FUSED):
            raise ConversionError(
                f"node '{node.name}': the fused lookup {node.op} of DeepRec, expected KvResourceGather; export the "
                f"model with embedding_lookup_sparse and without fused or grouped lookups"
            )
        lookups: dict[str, list[Node]] = {}
        for node in served(model, LOOKUPS):
            lookups.setdefault(_handle(model, node.inputs[0]).name, []).append(node)
        for handle, nodes in lookups.items():
            table = self._table(model, model.graph[handle], nodes, absent)
            for node in nodes:
                own = attribute(node, "is_use_default_value_tensor", False) and not is_set(absent, table.name)
                replace_by_lookup(model, node, table, node.inputs[1], node.inputs[2] if own else None)

    def _table(self, model: Model, handle: Node, lookups: list[Node], absent: dict[str, str]) -> SparseTable:
        bundle = checkpoint_of(model, handle)
        name = _saved_name(model, handle)
        dim, dtype = row_length(handle, "shape"), numpy_type(handle, "dtype")
        parts, tensors = parts_of(bundle, name, handle, _part_count(model, name))
        if all(attribute(node, "is_use_default_value_tensor", False) for node in lookups):
            value = Absent(None, "DeepRec: every lookup gives its own default (is_use_default_value_tensor)")
        elif is_set(absent, name):
            value = Absent(None, "--absent-key")
        else:
            inference = any(attribute(node, "is_inference", False) for node in lookups)
            value = _absent(model, handle, name, dim, dtype, inference)
        table = SparseTable(name, "deeprec", numpy_type(handle, "Tkeys"), dim, dtype, parts, value)
        check_shapes(table, may_be_empty=True)
        if value.rows is not None and len(value.rows) > 1 and table.key_dtype.kind == "O":
            raise ConversionError(
                f"table '{name}': string keys and {len(value.rows)} default rows, expected rows that do not "
                f"depend on the key; choose one with {how_to_choose(name)}"
            )
        model.sparse_tables[name] = table
        model.tensor_names[name] = tuple(tensors)
        for one in (one.removesuffix(KEYS) for one in tensors if one.endswith(KEYS)):
            for suffix, reason in _OTHERS.items():
                drop(model, table, one + suffix, reason)
        for slot in _slots(model, handle, name):
            _drop_slot(model, table, slot)
        return table


def _handle(model: Model, output: Output) -> Node:
    handle = handle_node(model.graph, output)
    if handle.op != HANDLE:
        raise ConversionError(f"node '{handle.name}': {handle.op} found, expected the {HANDLE} of a lookup")
    return handle


def _setters(model: Model, handle: Node) -> list[Node]:
    """List the nodes that initialise or restore a table."""
    found = []
    for node in model.graph.of(*_SETTERS):
        own = _SETTERS[node.op][0]
        if handle_node(model.graph, node.inputs[own]).name == handle.name:
            found.append(node)
    return sorted(found, key=lambda node: list(_SETTERS).index(node.op))


def _candidates(model: Model, handle: Node) -> list[str]:
    """List the names under which a table may be saved, the surest first."""
    names = []
    for node in _setters(model, handle):
        if node.op == "KvResourceImportV2":
            given = model.graph.const_value(node.inputs[4])
            names += [one.decode() for one in given.reshape(-1).tolist()] if given is not None else []
    names.append(attribute(handle, "shared_name", b"").decode())
    names.append(handle.name)
    return [name for name in names if name]


def _saved_name(model: Model, handle: Node) -> str:
    """Return the table's name in the checkpoint, which may be partitioned otherwise than the graph is."""
    names = _candidates(model, handle)
    for name in names:
        whole = PART.sub("", name)
        if any(f"{one}{KEYS}" in model.checkpoint for one in (name, whole, f"{whole}/part_0")):
            return name
    return find_saved(model.checkpoint, names, handle)


def _part_count(model: Model, name: str) -> int:
    """Count the parts that the graph looks a table's keys up in."""
    whole = PART.sub("", name)
    numbers = []
    for handle in model.graph.of(HANDLE):
        for one in _candidates(model, handle)[:1]:
            if PART.search(one) and PART.sub("", one) == whole:
                numbers.append(int(one.rpartition("_")[2]))
    return max(numbers, default=0) + 1


def _absent(model: Model, handle: Node, name: str, dim: int, dtype: np.dtype[Any], inference: bool) -> Absent:
    """Find what the source gives absent keys."""
    setters = _setters(model, handle)
    if not setters:
        raise ConversionError(
            f"table '{name}': no InitializeKvVariableOp or KvResourceImportV2 of '{handle.name}' in the graph, "
            f"expected one that says what absent keys get; choose it with {how_to_choose(name)}"
        )
    setter = setters[0]
    filtered = attribute(setter, "filter_freq", 0)
    if filtered > 1 or (filtered and inference):
        given = float(attribute(setter, "default_value_no_permission", 0.0))
        row = np.full((1, dim), given, dtype) if given else None
        return Absent(row, f"DeepRec: default_value_no_permission {given:g} (filter_freq {filtered})")
    try:
        matrix = constant_value(model, setter.inputs[_SETTERS[setter.op][2]])
    except NotConstantError as error:
        raise ConversionError(
            f"table '{name}': absent keys get rows that the export does not hold ({error}), expected a constant "
            f"initializer; choose their value with {how_to_choose(name)}"
        ) from error
    return Absent(_default_rows(matrix, setter, name, dim, dtype), f"DeepRec: initial value of '{setter.name}'")


def _default_rows(matrix: Any, setter: Node, name: str, dim: int, dtype: np.dtype[Any]) -> Any:
    """Return the rows that absent keys get: None for zeros, one, or one for each remainder of the key."""
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


def _slots(model: Model, handle: Node, name: str) -> list[str]:
    """Name the optimizer slots of a table: by the graph, else by their names in the checkpoint."""
    slots, known = [], set()
    for node in model.graph.of(*_SETTERS):
        own, primary, _ = (handle_node(model.graph, node.inputs[one]).name for one in _SETTERS[node.op])
        names = _candidates(model, model.graph[own]) if model.graph[own].op == HANDLE else []
        known.update(names)
        if primary == handle.name != own:
            slots += [one for one in names if one + KEYS in model.checkpoint][:1]
    below = re.compile(re.escape(name) + r"/(?!part_\d+(-|/))[^/]+" + KEYS + "$")
    for one in model.checkpoint.names():
        if below.match(one) and one.removesuffix(KEYS) not in known:
            slots.append(one.removesuffix(KEYS))
    return sorted(set(slots))


def _drop_slot(model: Model, table: SparseTable, slot: str) -> None:
    """Note the tensors of a slot, after a check that it has the table's keys."""
    keys = tensor(model.checkpoint, slot + KEYS)
    if not same_key_set([part.keys for part in table.parts], keys):
        raise UnreadableError(
            f"{model.checkpoint.index}: slot '{slot}' has other keys than table '{table.name}' ({keys.shape[0]} and "
            f"{table.count}), expected the same"
        )
    for suffix in (KEYS, VALUES, *_OTHERS):
        drop(model, table, slot + suffix, f"optimizer slot of '{table.name}'")
