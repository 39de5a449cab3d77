# SPDX-License-Identifier: Apache-2.0
"""Read TensorFlow's own hash tables of rows (MutableHashTable), as elastic_training exports them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_tools.graph import Node, attribute
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers.families.default_inputs import take_absent_value
from graph_tools.readers.families.lookups import handle_node, replace_by_lookup, served_nodes
from graph_tools.readers.families.saved import numpy_type, row_length
from graph_tools.tables.checks import check_shapes

HANDLE, LOOKUP = "MutableHashTableOfTensorsV2", "LookupTableFindV2"
_KEYS = (np.dtype(np.int64), np.dtype(object))


class NativeTables:
    """Reads hash tables from keys to rows that the checkpoint fills, and that no request changes.

    Before: `MutableHashTableOfTensorsV2, keys, default_value → LookupTableFindV2 → rows`.

    After: `keys → SparseLookup → rows`, and a SparseTable with the name of the table's node.

    Notes
    -----
    The row of an absent key is `default_value`, as with TFRA: one row for all keys, or computed for each key.
    """

    name = "TensorFlow hash tables"

    def matches(self, model: Model) -> bool:
        return bool(_lookups(model))

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        for name, nodes in _lookups(model).items():
            table = _read(model, model.graph[name])
            defaults = take_absent_value(model, table, nodes, absent, "TensorFlow")
            for node in nodes:
                replace_by_lookup(model, node, table, node.inputs[1], defaults.get(node.name))
            del model.hash_tables[name]


def _lookups(model: Model) -> dict[str, list[Node]]:
    """Return the lookups by table: of those that only lookups use, have float rows and a content."""
    found: dict[str, list[Node]] = {}
    for node in served_nodes(model, {LOOKUP}):
        handle = handle_node(model.graph, node.inputs[0])
        if handle.op == HANDLE and handle.name in model.hash_tables:
            found.setdefault(handle.name, []).append(node)
    needed = model.graph.ancestors(model.outputs())
    return {name: nodes for name, nodes in found.items() if _is_read_only(model, name, needed)}


def _is_read_only(model: Model, name: str, needed: set[str]) -> bool:
    handle, content = model.graph[name], model.hash_tables[name]
    shape = attribute(handle, "value_shape")
    rows = shape is not None and len(shape) == 1 and bool(shape[0]) and content.values is not None
    typed = numpy_type(handle, "value_dtype") == np.float32 and numpy_type(handle, "key_dtype") in _KEYS
    users = [user for user in model.graph.users(name) if user.name in needed]
    return rows and typed and all(user.op in {LOOKUP, "Identity"} for user in users)


def _read(model: Model, handle: Node) -> SparseTable:
    content, dim = model.hash_tables[handle.name], row_length(handle, "value_shape")
    assert content.values is not None
    table = SparseTable(
        handle.name,
        "tensorflow",
        numpy_type(handle, "key_dtype"),
        dim,
        numpy_type(handle, "value_dtype"),
        [Part(content.keys, content.values)],
        Absent(None, "TensorFlow: to be set from the lookups"),
    )
    check_shapes(table, may_be_empty=True)
    model.sparse_tables[handle.name] = table
    return table
