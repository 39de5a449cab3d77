# SPDX-License-Identifier: Apache-2.0
"""Give the rows of a table different widths, and turn what lookups return back into the basis of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.graph import attribute
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model import Model
from graph_tools.model.tables import Part, SparseTable
from graph_tools.report.compress import CompressedTable
from graph_tools.rewriting.multiply_rows import multiply_rows
from graph_tools.tables.absent import absent_policy
from graph_tools.tables.mixed_dims import RowWidth, mix_dims
from graph_tools.tensors import Array, ArrayTensor
from graph_tools.verbs.compressible import check_dim, dims_report, read_table


@dataclass(frozen=True)
class MixedTable:
    """A table whose rows were rotated.

    Attributes
    ----------
    name : str
        Of the table, as passes record it.
    basis : ndarray [dim, dim] float32
        What lookups return times this is what they returned before.
    """

    name: str
    basis: Array


def mix_table(
    model: Model, handle: str, table: SparseTable, widths: Sequence[RowWidth], memory_limit: int
) -> tuple[MixedTable, CompressedTable]:
    """Replace the rows of a table of a model as it was read by rotated rows of different widths.

    Parameters
    ----------
    handle, table
        As `find_table` returns them.

    Raises
    ------
    UsageError
        The table's rows are narrower than a width.
    ConversionError
        There is too little memory, or a lookup computes the value of absent keys.
    """
    name = table.name
    check_dim(name, widths, table.dim)
    policy = absent_policy(model.graph, handle, table)
    if policy.by_input:
        found = f"table '{name}': lookup '{min(policy.by_input)}' computes the row of absent keys"
        raise ConversionError(f"{found}, expected a constant one: it cannot be rotated")
    keys, rows, weights = read_table(table, memory_limit)
    # Rows of rare keys have hardly moved from where they began.
    used = np.square(rows).sum(axis=1) if weights is None else weights
    mixed = mix_dims(rows, used, widths)
    absent = policy.absent
    if absent.rows is not None:
        absent = replace(absent, rows=(np.asarray(absent.rows, np.float32) @ mixed.basis.T).astype(np.float32))
    for node in lookups(model.graph, handle):
        if attribute(node, "has_default", False):
            model.graph.set_attr(node, "has_default", False)
    ignored = [part.ignored for part in table.parts if part.ignored is not None]
    part = Part(
        ArrayTensor(keys[mixed.order]), ArrayTensor(mixed.rows), ignored=np.concatenate(ignored) if ignored else None
    )
    model.sparse_tables[handle] = replace(
        table, dtype=np.dtype(np.float32), parts=[part], absent=absent, keeps_order=True
    )
    key_bytes = table.source_bytes - rows.size * table.dtype.itemsize
    compressed = dims_report(name, rows.shape, table.source_bytes, key_bytes, widths, mixed, weights is not None)
    return MixedTable(name, mixed.basis), compressed


def turn_back(model: Model, mixed: MixedTable) -> None:
    """Multiply what the lookups of a rotated table return, after the passes of `cut`."""
    graph = model.graph
    (stored,) = (table for table in model.stored_tables if table.source.name == mixed.name)
    handle = stored.names.get("rows")
    gathers = [] if handle is None else [node for node in graph.users(handle) if node.op == "ResourceGather"]
    if not gathers or len(gathers) != len(graph.users(str(handle))):
        raise ConversionError(
            f"table '{mixed.name}': its rows are not looked up one by one, expected fp32 rows and lookups"
        )
    for node in gathers:
        multiply_rows(model, node.output(), mixed.basis)
