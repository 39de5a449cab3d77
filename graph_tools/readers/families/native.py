# SPDX-License-Identifier: Apache-2.0
"""Read TensorFlow's own hash tables of rows (MutableHashTable), as elastic_training exports them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.graph import Node, Output, attribute
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers.families.computed import NotConstantError, same_row
from graph_tools.readers.families.lookups import handle_node, replace_by_lookup, served_nodes
from graph_tools.readers.families.saved import numpy_type, row_length
from graph_tools.tables.absent_keys import how_to_choose, is_set
from graph_tools.tables.checks import check_shapes
from graph_tools.tensors import Array

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
            defaults = {} if is_set(absent, name) else _set_absent(model, table, nodes)
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


def _set_absent(model: Model, table: SparseTable, nodes: list[Node]) -> dict[str, Output]:
    """Set a table's absent value, and return the `default` inputs of lookups with other values."""
    rows: dict[str, Array | None] = {}
    for node in nodes:
        try:
            rows[node.name] = same_row(model, node.inputs[2], table.dim)
        except NotConstantError as error:
            raise ConversionError(
                f"table '{table.name}': absent keys get another row in each request ({error}), expected a constant "
                f"default_value; choose one with {how_to_choose(table.name)}"
            ) from error
    first = next((row for row in rows.values() if row is not None), None)
    if first is None:
        table.absent = Absent(None, "TensorFlow: default_value is computed for each key (input of the lookup)")
        return {node.name: node.inputs[2] for node in nodes}
    table.absent = Absent(first[None] if first.any() else None, "TensorFlow: default_value of the lookup")
    same = {name for name, row in rows.items() if row is not None and np.array_equal(row, first)}
    return {node.name: node.inputs[2] for node in nodes if node.name not in same}
