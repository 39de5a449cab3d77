# SPDX-License-Identifier: Apache-2.0
"""Look up a column with one value per row directly."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.graph import Graph, Output, attribute
from graph_tools.model import Model
from graph_tools.recognition.lookups.columns import Column, find_column
from graph_tools.recognition.lookups.safe_lookup import SEGMENTS, Finders, SafeLookup, find_safe_lookup
from graph_tools.rewriting.add_nodes import add_column, add_reshape, shared_zero
from graph_tools.rewriting.chains import clone_chain
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output
from graph_tools.rewriting.sizes import drop_same_shape_reshapes

_WHY = "a column of one value per row needs no sparse tensor"


class CollapseSingleValuedColumns(SitePass[tuple[SafeLookup, Column]]):
    """Replace the sparse round trip of a column with one value per row by a lookup and a Select.

    Before: `x [batch, 1] → NotEqual '' → Where → GatherNd → hash → SparseReshape → GreaterEqual, Where, GatherV2 →
    SparseFillEmptyRows → Unique → ResourceGather → SparseSegmentMean → Tile, Select → Reshape`, some 60 nodes.
    After: `Select(x ≠ '', ResourceGather(hash(x)), 0)`.

    The mean, the sum and the sum over √n of one row are the row itself, so scores stay equal bit for bit. The mark of a
    missing value ('' or -1) gives zeros, or the row of the default id, as before.
    """

    name = "collapse_single_valued_columns"

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph.of(*SEGMENTS)]

    def match(self, model: Model, site: str) -> Outcome[tuple[SafeLookup, Column]]:
        finders = Finders(model)
        outcome = find_safe_lookup(model, site, finders)
        if not isinstance(outcome, Found):
            return outcome
        lookup = outcome.value
        columns = find_column(model, lookup.indices, lookup.ids, lookup.shape, finders)
        if not isinstance(columns, Found):
            return columns
        column = columns.value
        shape = finders.sizes.of(column.dense) or ()
        if len(shape) != 2 or shape[1] != 1:
            return Refused(f"'{column.dense}' holds {_values_per_row(shape)} values per row, expected one")
        if lookup.mask is not None and not lookup.drops_negative:
            return Refused(f"'{lookup.mask}' drops entries for another reason than a negative id")
        return Found((lookup, column))

    def rewrite(self, model: Model, site: str, found: tuple[SafeLookup, Column]) -> None:
        lookup, column = found
        graph, ranges = model.graph, Finders(model).ranges
        dtype = lookup.rows.dtype(graph)
        name = lookup.output.node
        negative = lookup.drops_negative and not ranges.is_nonnegative(lookup.ids)
        fits = _reads_rows_only(model, lookup, ranges.of(lookup.rows.end))
        ids_dtype = attribute(lookup.fill, "T")
        flat = _as_vector(model, column.dense)
        ids = clone_chain(graph, column.chain, column.values, lookup.ids, flat)
        present = column.present
        if negative or not fits or lookup.default is not None:
            kept = add_reshape(graph, column.present, np.bool_, (-1,), f"{name}/present")
            if negative:
                inputs = [ids, shared_zero(graph, ids_dtype)]
                valid = graph.add("GreaterEqual", inputs, name=f"{name}/valid", attrs={"T": ids_dtype})
                kept = graph.add("LogicalAnd", [kept, valid.output()], name=f"{name}/kept").output()
                present = add_column(graph, kept, np.bool_, f"{name}/rows")
            instead = [kept, ids, lookup.fill.inputs[3]]
            ids = graph.add("SelectV2", instead, name=f"{name}/ids", attrs={"T": ids_dtype}).output()
        rows = lookup.rows.add_gather(graph, ids, lookup.rows.number_dtype, f"{name}/gather")
        if lookup.default is None:
            inputs = [present, rows, shared_zero(graph, dtype)]
            rows = graph.add("SelectV2", inputs, name=f"{name}/select", attrs={"T": dtype}).output()
        replace_output(model, lookup.output, rows, dtype, _WHY)
        drop_same_shape_reshapes(model, rows, _WHY)


def _values_per_row(shape: tuple[object, ...]) -> str:
    return "an unknown number of" if len(shape) != 2 or not isinstance(shape[1], int) else str(shape[1])


def _as_vector(model: Model, dense: Output) -> Output:
    """Return a column [batch, 1] as a vector [batch]."""
    graph: Graph = model.graph
    node = graph[dense.node]
    finders = Finders(model)
    if node.op in {"ExpandDims", "Reshape"} and finders.sizes.of(node.inputs[0]) == (finders.sizes.of(dense) or ())[:1]:
        return node.inputs[0]
    user = next((u for u in graph.users(dense.node) if u.name == f"{dense.node}/flat"), None)
    if user is not None:
        return user.output()
    dtype = next(attribute(u, "T") for u in graph.users(dense.node) if u.op == "NotEqual")
    return add_reshape(graph, dense, dtype, (-1,), f"{dense.node}/flat")


def _reads_rows_only(model: Model, lookup: SafeLookup, numbers: tuple[int | None, int | None]) -> bool:
    """Return whether every number that the gather may receive, also for a missing value, is a row of the table."""
    handle = lookup.rows.handle(model.graph)
    if handle is None:
        return True
    tensor = model.variables.get(handle.node)
    low, high = numbers
    return tensor is not None and low is not None and high is not None and low >= 0 and high < tensor.shape[0]
