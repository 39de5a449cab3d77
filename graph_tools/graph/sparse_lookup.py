# SPDX-License-Identifier: Apache-2.0
"""The one form that every custom sparse lookup is given before any pass sees it.

`SparseLookup` is an op of this package, never of an exported model: TensorFlow does not know it, and no output of
`cut` holds it. A family's reader replaces its own ops by it; passes, the conversion to native ops and the evaluation in
NumPy then know one op only.

    inputs   keys [...] Tkeys; and, where `has_default`, default [dim] or [..., dim] dtype: what absent keys are given
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
    """Turn a node into a lookup; its name, its users and what it runs after stay."""
    node.op = OP
    node.attrs = {key: attr_value(one) for key, one in _attributes(table, key_dtype, dim, dtype, default).items()}
    graph.set_inputs(node, [keys] if default is None else [keys, default])


def _attributes(table: str, key_dtype: Any, dim: int, dtype: Any, default: Output | None) -> dict[str, Any]:
    return {"table": table, "Tkeys": key_dtype, "dtype": dtype, "dim": dim, "has_default": default is not None}


def table_of(node: Node) -> str:
    """Return the name of the table of a SparseLookup."""
    return str(attribute(node, "table").decode())


def lookups(graph: Graph, table: str | None = None) -> list[Node]:
    """Return the lookups, of one table or of all."""
    return [node for node in graph.of(OP) if table is None or table_of(node) == table]
