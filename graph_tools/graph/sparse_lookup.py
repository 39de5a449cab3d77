# SPDX-License-Identifier: Apache-2.0
"""The common form to which readers convert every custom sparse lookup before any pass runs.

`SparseLookup` is an op of this package, never of an exported model: TensorFlow does not know it, and no output of
`cut` contains it. The reader of each family replaces the family's ops by it. Passes, the conversion to native ops and
the evaluation in NumPy then handle only one op.

    inputs   keys [...] Tkeys; and, where `has_default`, default [dim] or [..., dim] dtype: the value of absent keys
             instead of the table's own absent value
    attrs    table: name in `Model.sparse_tables`, Tkeys, dtype, dim: int, has_default: bool
    output   rows [..., dim] dtype
"""

from __future__ import annotations

from typing import Any

from graph_tools.graph import Graph, Node, Output, attr_value, attribute

OP = "SparseLookup"


def add_lookup(
    graph: Graph,
    table: str,
    keys: Output,
    key_dtype: Any,
    dim: int,
    dtype: Any,
    default: Output | None = None,
    name: str = OP,
) -> Node:
    """Add a lookup of `keys` in a table."""
    attrs = _attributes(table, key_dtype, dim, dtype, default)
    return graph.add(OP, [keys] if default is None else [keys, default], name=name, attrs=attrs)


def become_lookup(
    graph: Graph,
    node: Node,
    table: str,
    keys: Output,
    key_dtype: Any,
    dim: int,
    dtype: Any,
    default: Output | None = None,
) -> None:
    """Turn a node into a lookup; keep its name, its users and its control inputs."""
    node.op = OP
    node.attrs = {key: attr_value(value) for key, value in _attributes(table, key_dtype, dim, dtype, default).items()}
    graph.set_inputs(node, [keys] if default is None else [keys, default])


def _attributes(table: str, key_dtype: Any, dim: int, dtype: Any, default: Output | None) -> dict[str, Any]:
    return {"table": table, "Tkeys": key_dtype, "dtype": dtype, "dim": dim, "has_default": default is not None}


def table_of(node: Node) -> str:
    """Return the name of the table of a SparseLookup."""
    return str(attribute(node, "table").decode())


def lookups(graph: Graph, table: str | None = None) -> list[Node]:
    """Return the lookups in one table or in all tables."""
    return [node for node in graph.of(OP) if table is None or table_of(node) == table]
