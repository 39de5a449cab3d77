# SPDX-License-Identifier: Apache-2.0
"""Decide which value absent keys of a table have, from the graph and the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_tools.graph import Graph, Node, attribute, constant
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.tensors import Array


@dataclass(frozen=True)
class AbsentPolicy:
    """The absent value of a table, and the lookups that use another value.

    Attributes
    ----------
    absent : Absent
        Absent value of every lookup that is not in `by_input`.
    by_input : frozenset of str
        Lookups whose second input is the value of absent keys.
    """

    absent: Absent
    by_input: frozenset[str]

    @property
    def unanimous(self) -> bool:
        """True if every lookup uses the table's absent value, so that rows equal to it can be dropped."""
        return not self.by_input


def absent_policy(graph: Graph, name: str, table: SparseTable, live: bool = False) -> AbsentPolicy:
    """Return the absent values of a table's lookups.

    If the model is live, the rows of the table's own value may change, and all of them stay.

    The second input of a lookup takes precedence over the table's own value, which is the user's if the user set one.
    If all lookups have the same constant second input of one row, that row becomes the table's value.
    """
    found = lookups(graph, name)
    own = table.absent if live else _simplify(table.absent)
    with_input = [node for node in found if attribute(node, "has_default", False)]
    if not with_input:
        return AbsentPolicy(own, frozenset())
    rows = [_constant_row(graph, node, table) for node in with_input]
    if len(with_input) == len(found) and all(
        row is not None and rows[0] is not None and row.tobytes() == rows[0].tobytes() for row in rows
    ):
        assert rows[0] is not None
        source = f"constant second input of '{with_input[0].name}'"
        return AbsentPolicy(_simplify(Absent(rows[0][None], source)), frozenset())
    return AbsentPolicy(own, frozenset(node.name for node in with_input))


def _constant_row(graph: Graph, node: Node, table: SparseTable) -> Array | None:
    """Return the second input [dim] of a lookup if it is constant and one row for all keys, else None."""
    value = constant(graph, node.inputs[1])
    if value is None or not value.size:
        return None
    if value.size == 1:
        return np.full(table.dim, value.reshape(()), table.dtype)
    if value.shape[-1] != table.dim:
        return None
    rows = value.reshape(-1, table.dim)
    return rows[0].astype(table.dtype) if (rows == rows[0]).all() else None


def _simplify(absent: Absent) -> Absent:
    """Return the same value in its simplest form: no rows if all are zero, one row if all are equal."""
    rows = absent.rows
    if rows is None or not rows.any():
        return Absent(None, absent.source)
    return Absent(rows[:1], absent.source) if (rows == rows[0]).all() else absent
