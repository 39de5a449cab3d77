# SPDX-License-Identifier: Apache-2.0
"""What absent keys of one table are given, once the graph and the table have been asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_tools.graph import Graph, Node, attribute
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.tensors import Array


@dataclass(frozen=True)
class AbsentPolicy:
    """The absent value that a table keeps, and the lookups that give another.

    Attributes
    ----------
    absent : Absent
        Of every lookup that is not in `by_input`.
    by_input : frozenset of str
        Lookups whose absent keys are given their second input.
    """

    absent: Absent
    by_input: frozenset[str]

    @property
    def unanimous(self) -> bool:
        """Whether every lookup gives an absent key the table's value, so that a row equal to it may go."""
        return not self.by_input


def absent_policy(graph: Graph, name: str, table: SparseTable) -> AbsentPolicy:
    """Decide it: a lookup's second input before the table's own value, which is the user's where there is one.

    A second input that is constant and one row becomes the table's value, where all lookups have the same.
    """
    found = lookups(graph, name)
    with_input = [node for node in found if attribute(node, "has_default", False)]
    if not with_input:
        return AbsentPolicy(_simplest(table.absent), frozenset())
    rows = [_constant_row(graph, node, table) for node in with_input]
    if len(with_input) == len(found) and all(
        row is not None and rows[0] is not None and row.tobytes() == rows[0].tobytes() for row in rows
    ):
        assert rows[0] is not None
        source = f"constant second input of '{with_input[0].name}'"
        return AbsentPolicy(_simplest(Absent(rows[0][None], source)), frozenset())
    return AbsentPolicy(_simplest(table.absent), frozenset(node.name for node in with_input))


def _constant_row(graph: Graph, node: Node, table: SparseTable) -> Array | None:
    """Return the second input [dim] of a lookup, where it is constant and one row for all keys."""
    value = graph.const_value(node.inputs[1])
    if value is None or not value.size:
        return None
    if value.size == 1:
        return np.full(table.dim, value.reshape(()), table.dtype)
    if value.shape[-1] != table.dim:
        return None
    rows = value.reshape(-1, table.dim)
    return rows[0].astype(table.dtype) if (rows == rows[0]).all() else None


def _simplest(absent: Absent) -> Absent:
    """Return the same with no rows where all are zero, and one where all are equal."""
    rows = absent.rows
    if rows is None or not rows.any():
        return Absent(None, absent.source)
    return Absent(rows[:1], absent.source) if (rows == rows[0]).all() else absent
