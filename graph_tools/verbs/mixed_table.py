# SPDX-License-Identifier: Apache-2.0
"""Give the rows of a table different widths, and turn what lookups return back into the basis of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graph_tools.errors import ConversionError, UsageError
from graph_tools.graph import attribute
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model import Model
from graph_tools.model.tables import Part
from graph_tools.report.compress import CompressedTable
from graph_tools.rewriting.multiply_rows import multiply_rows
from graph_tools.tables.absent import absent_policy
from graph_tools.tables.mixed_dims import RowWidth, mix_dims
from graph_tools.tensors import Array, ArrayTensor
from graph_tools.verbs.compressible import find_table, read_table


@dataclass(frozen=True)
class MixedTable:
    """A table whose rows were rotated.

    Attributes
    ----------
    compressed : CompressedTable
        For the report.
    basis : ndarray [dim, dim] float32
        What lookups return times this is what they returned before.
    """

    compressed: CompressedTable
    basis: Array


def mix_table(model: Model, name: str, widths: Sequence[RowWidth], memory_limit: int) -> MixedTable:
    """Replace the rows of a table of a model as it was read by rotated rows of different widths.

    Raises
    ------
    UsageError
        The model has no such table, or its rows are narrower than a width.
    ConversionError
        There is too little memory, or a lookup computes the value of absent keys.
    """
    handle, table = find_table(model, name)
    if widths[0].dim > table.dim:
        raise UsageError(f"--dims {widths[0].dim}: table '{name}' has rows of {table.dim} elements, expected no more")
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
    ends = np.cumsum([len(rows) if each.rows is None else each.rows for each in widths]).clip(max=len(rows))
    compressed = CompressedTable(
        name=table.name,
        keys=table.count,
        dim=table.dim,
        bytes_before=table.source_bytes,
        bytes=mixed.bytes + table.source_bytes - table.count * table.dim * table.dtype.itemsize,
        rows=table.count,
        method="dims",
        parts=np.diff(ends, prepend=0).tolist(),
        dims=[each.dim for each in widths],
        error=mixed.error,
        weighed_by="norm" if weights is None else "frequency",
    )
    return MixedTable(compressed, mixed.basis)


def turn_back(model: Model, mixed: MixedTable) -> None:
    """Multiply what the lookups of a rotated table return, after the passes of `cut`."""
    graph = model.graph
    (stored,) = (table for table in model.stored_tables if table.source.name == mixed.compressed.name)
    handle = stored.names.get("rows")
    gathers = [] if handle is None else [node for node in graph.users(handle) if node.op == "ResourceGather"]
    if not gathers or len(gathers) != len(graph.users(str(handle))):
        raise ConversionError(
            f"table '{mixed.compressed.name}': its rows are not looked up one by one, expected fp32 rows and lookups"
        )
    for node in gathers:
        multiply_rows(model, node.output(), mixed.basis)
