# SPDX-License-Identifier: Apache-2.0
"""Recognise sparse tensors that were made of dense columns: `x → NotEqual(missing) → Where → GatherNd`."""

from __future__ import annotations

from dataclasses import dataclass

from graph_tools.graph import Node, Output, constant, operand, skip, source
from graph_tools.model import Model
from graph_tools.recognition.lookups.safe_lookup import Finders, is_zeros
from graph_tools.rewriting.chains import chain_between


@dataclass
class Column:
    """A sparse tensor that was made of a dense column.

    Attributes
    ----------
    dense : Output [...]
    present : Output [...] bool
        False where the value means that there is none.
    values : Output [n]
        The values that are there.
    chain : list of Node
        From `values` to ids.
    """

    dense: Output
    present: Output
    values: Output
    chain: list[Node]


def find_column(model: Model, indices: Output, ids: Output, shape: Output, finders: Finders) -> Column | str:
    """Recognise the dense column that a sparse tensor was made of; "" where it was not.

    Parameters
    ----------
    model : Model
    indices, ids, shape : Output
        The sparse tensor; `ids` may be made from the column's values, each from its own.
    finders : Finders
    """
    graph = model.graph
    where = source(graph, indices, "Where")
    differs = source(graph, where.inputs[0], "NotEqual") if where is not None else None
    if where is None or differs is None:
        return ""
    dense = operand(graph, differs, 0)
    missing = constant(graph, differs.inputs[1])
    sizes = finders.sizes.of(dense)
    if sizes is None or not (is_zeros(graph, differs.inputs[1]) or (missing is not None and missing.size == 1)):
        return ""
    if finders.sizes.vector(shape) != sizes:
        return f"shape '{shape}' is not that of '{dense}'"
    reason = ""
    for gather in graph.users(where.name):
        if gather.op != "GatherNd" or operand(graph, gather, 0) != dense or operand(graph, gather, 1) != where.output():
            continue
        chain: list[Node] | str = []
        if skip(graph, ids) != gather.output():
            chain = chain_between(graph, gather.output(), ids)
        if not isinstance(chain, str):
            return Column(dense, differs.output(), gather.output(), chain)
        reason = chain
    return reason or f"ids '{ids}' are not made of '{dense}'"
