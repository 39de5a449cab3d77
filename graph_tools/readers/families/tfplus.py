# SPDX-License-Identifier: Apache-2.0
"""Read TFPlus's KvVariable: tables whose rows are in the TF checkpoint, and whose absent keys have zeros."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Node, Output, attr_value, attribute, constant
from graph_tools.graph.sparse_lookup import OP, add_lookup
from graph_tools.model import Model
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.readers.families.frequencies import aligned_counts
from graph_tools.readers.families.lookups import handle_node, replace_by_lookup, served_nodes
from graph_tools.readers.families.saved import (
    KEYS,
    VALUES,
    checkpoint_of,
    drop,
    find_saved,
    numpy_type,
    read_part,
    row_length,
    tensor,
)
from graph_tools.readers.restore import restored_tensor
from graph_tools.tables.absent_keys import base_name, requested_value
from graph_tools.tables.checks import check_shapes
from graph_tools.tensors import Array

HANDLES = {"KvVariable", "KvVariableV2", "KvVariableV3", "KvVariableV4"}
LOOKUP, BATCH, LEGACY = "KvVariableGatherOrZerosV2", "BatchKvVariableGatherOrZerosV2", "KvVariableGatherV2"
INSERTING = {"KvVariableGatherOrInsertV2", "KvVariableGatherOrInsertWithCounts"}
_IMPORTS = {
    "KvVariableImport",
    "KvVariableImportV2",
    "KvVariableImportV3",
    "KvVariableFullOrDeltaImport",
    "KvVariableFullOrDeltaImportV2",
}
_OTHERS = {
    "-init_table": "rows that training begins new keys with",
    "-blacklist": "keys that group lasso set to zero: a lookup gives them zeros",
    "-freq_keys": "keys of the frequencies",
    "-freq_values": "frequencies, which only --min-frequency looks at",
    "-need_full_import": "says that the export is whole",
    "-delete_keys": "keys that are gone: a lookup gives them zeros",
}


class TFPlus:
    """Reads KvVariables.

    Before: `KvVariable, indices → KvVariableGatherOrZerosV2 → rows`.

    After: `indices → SparseLookup → rows`, and a SparseTable for each handle.

    Notes
    -----
    Rows of absent, blacklisted or deleted keys are zeros. Lookups of training insert keys that they do not find; they
    are read like lookups of prediction only if the user sets the table's absent keys.
    """

    name = "TFPlus KvVariable"

    def matches(self, model: Model) -> bool:
        return bool(served_nodes(model, {LOOKUP, BATCH, LEGACY} | INSERTING))

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        for node in served_nodes(model, {LOOKUP, LEGACY} | INSERTING):
            table = _table(model, node.inputs[0])
            if node.op != LOOKUP:
                _check_mode(model, node, table, absent)
            replace_by_lookup(model, node, table, node.inputs[1], None)
        for node in served_nodes(model, {BATCH}):
            _split(model, node)


def _check_mode(model: Model, node: Node, table: SparseTable, absent: dict[str, str]) -> None:
    """Refuse lookups with other absent values than zeros, unless the user sets the value of absent keys."""
    if requested_value(absent, table.name) is not None:
        return
    option = f"--absent-key {base_name(table.name)}=zero"
    if node.op in INSERTING:
        raise ConversionError(
            f"node '{node.name}': {node.op} inserts a random row for each key that it does not find, expected "
            f"{LOOKUP}; export the model for prediction (kv_variable_ops.IS_TRAINING = False), or give {option}"
        )
    initial = constant(model.graph, node.inputs[2])
    if initial is None or initial.any():
        raise ConversionError(
            f"node '{node.name}': {node.op} gives absent keys rows of the initial table, expected zeros; give {option}"
        )


def _split(model: Model, node: Node) -> None:
    """Replace a batched lookup by one lookup per table; the node stays and passes the rows on."""
    count = int(attribute(node, "N"))
    rows, types = [], []
    for number in range(count):
        table, keys = _table(model, node.inputs[number]), node.inputs[count + number]
        name = f"{node.name}/{OP}"
        rows.append(add_lookup(model.graph, table.name, keys, table.key_dtype, table.dim, table.dtype, None, name))
        types.append(table.dtype)
    node.op, node.attrs = "IdentityN", {"T": attr_value(types)}
    model.graph.set_inputs(node, [row.output() for row in rows])


def _table(model: Model, handle_output: Output) -> SparseTable:
    """Return the table of a handle, which is read at its first use."""
    handle = handle_node(model.graph, handle_output)
    if handle.op not in HANDLES:
        raise ConversionError(f"node '{handle.name}': {handle.op} found, expected the KvVariable of a lookup")
    bundle = checkpoint_of(model, handle)
    name = find_saved(bundle, _candidates(model, handle), handle)
    if name in model.sparse_tables:
        return model.sparse_tables[name]
    if name + "-need_full_import" in bundle and not tensor(bundle, name + "-need_full_import").read().all():
        raise UnreadableError(
            f"{bundle.index}: table '{name}' is a delta (need_full_import is false), expected a full export"
        )
    part = read_part(bundle, name + KEYS, name + VALUES)
    part.ignored = _ignored(model, name, part.keys.dtype)
    if f"{name}-freq_keys" in bundle and f"{name}-freq_values" in bundle:
        counted = read_part(bundle, f"{name}-freq_keys", f"{name}-freq_values")
        part.frequencies = aligned_counts(part.keys, counted.keys, counted.rows)
    absent = Absent(None, "TFPlus: prediction gives zeros")
    key_dtype, dtype = numpy_type(handle, "key_dtype"), numpy_type(handle, "value_dtype")
    table = SparseTable(name, "tfplus", key_dtype, row_length(handle, "value_shape"), dtype, [part], absent)
    check_shapes(table, may_be_empty=True)
    model.sparse_tables[name] = table
    model.tensor_names[name] = (name + KEYS, name + VALUES)
    for suffix, reason in _OTHERS.items():
        drop(model, table, name + suffix, reason)
    _drop_slots(model, table)
    return table


def _candidates(model: Model, handle: Node) -> list[str]:
    """Return the names under which a table may be saved, the most certain first."""
    names = []
    for node in model.graph.of(*_IMPORTS):
        if handle_node(model.graph, node.inputs[0]).name == handle.name:
            found = restored_tensor(model.graph, node.inputs[1])
            if found and found[0].endswith(KEYS):
                names.append(found[0].removesuffix(KEYS))
    names.append(attribute(handle, "shared_name", b"").decode())
    names.append(handle.name)
    return [name for name in names if name]


def _ignored(model: Model, name: str, dtype: np.dtype[np.generic]) -> Array | None:
    """Return the keys that lookups do not find although they may have rows, or None."""
    lists = [name + suffix for suffix in ("-blacklist", "-delete_keys") if name + suffix in model.checkpoint]
    keys = [tensor(model.checkpoint, saved_list).read().reshape(-1) for saved_list in lists]
    for saved_list, read in zip(lists, keys, strict=True):
        if len(read) and read.dtype != dtype:
            raise UnreadableError(
                f"{model.checkpoint.index}: tensor '{saved_list}' is {read.dtype}, expected {dtype} as keys"
            )
    filled = [key for key in keys if len(key)]
    return np.concatenate(filled) if filled else None


def _drop_slots(model: Model, table: SparseTable) -> None:
    below = re.compile(re.escape(table.name) + r"/(?!part_\d+(-|/)).+" + KEYS + "$")
    for name in model.checkpoint.names():
        if below.match(name):
            for suffix in (KEYS, VALUES, *_OTHERS):
                slot = name.removesuffix(KEYS)
                drop(model, table, slot + suffix, f"optimizer slot of '{table.name}'")
