# SPDX-License-Identifier: Apache-2.0
"""Take the rows of absent keys from the `default` inputs of lookups, as TensorFlow's hash tables and TFRA have."""

from __future__ import annotations

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.graph import Node, Output
from graph_tools.model import Model
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.readers.families.computed import NotConstantError, same_row
from graph_tools.tables.absent_keys import how_to_choose, is_set
from graph_tools.tensors import Array


def take_absent_value(
    model: Model, table: SparseTable, nodes: list[Node], absent: dict[str, str], system: str
) -> dict[str, Output]:
    """Set a table's absent value, and return the `default` inputs of lookups with other values, by node.

    Parameters
    ----------
    nodes : list of Node
        The lookups, whose third inputs are their defaults.
    absent : dict
        What the user has chosen, by table; nothing is set then.
    system : str
        Whose lookups these are, for the description of the value.

    Raises
    ------
    ConversionError
        If absent keys get another row in each request.
    """
    if is_set(absent, table.name):
        return {}
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
        table.absent = Absent(None, f"{system}: default_value is computed for each key (input of the lookup)")
        return {node.name: node.inputs[2] for node in nodes}
    table.absent = Absent(first[None] if first.any() else None, f"{system}: default_value of the lookup")
    same = {name for name, row in rows.items() if row is not None and np.array_equal(row, first)}
    return {node.name: node.inputs[2] for node in nodes if node.name not in same}
