# SPDX-License-Identifier: Apache-2.0
"""What absent keys of one table are given, once the user, the graph and the table have been asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.graph import Graph, Node, attribute
from graph_tools.options import CutOptions
from graph_tools.tables.lookup import lookups
from graph_tools.tables.table import Absent, SparseTable
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


def absent_policy(graph: Graph, name: str, table: SparseTable, options: CutOptions) -> AbsentPolicy:
    """Decide it: the user's rule before the lookup's second input before the table's own value.

    A second input that is constant and one row becomes the table's value, where all lookups have the same.

    Raises
    ------
    UsageError
        The rule names a key that the table does not hold.
    """
    rule = options.absent_rule(table.name)
    if rule == "zero":
        return AbsentPolicy(Absent(None, "--absent-key zero"), frozenset())
    if rule.startswith("row:"):
        row = row_of_key(table, rule[4:])
        return AbsentPolicy(_simplest(Absent(row[None], f"--absent-key {rule}")), frozenset())
    found = lookups(graph, name)
    with_input = [node for node in found if attribute(node, "has_default", False)]
    if not with_input:
        return AbsentPolicy(_simplest(table.absent), frozenset())
    rows = [_constant_row(graph, node, table) for node in with_input]
    if len(with_input) == len(found) and all(
        one is not None and rows[0] is not None and one.tobytes() == rows[0].tobytes() for one in rows
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


def row_of_key(table: SparseTable, text: str) -> Array:
    """Return the row [dim] that a table holds for a key given as text."""
    if table.key_dtype.kind == "O":
        key: int | bytes = text.encode()
    else:
        try:
            key = int(text, 0)
        except ValueError:
            raise UsageError(f"table '{table.name}': absent key row:{text}, expected a whole number") from None
    from graph_tools.tables.blocks import aligned

    for part in table.parts:
        for keys, rows in aligned([part.keys, part.rows], max(64, (1 << 20) // max(1, table.dim * 4))):
            hit = np.flatnonzero(keys == key)
            if len(hit):
                row: Array = rows[hit[0]].copy()
                return row
    raise UsageError(f"table '{table.name}': absent key row:{text}, expected a key that the table holds")
