# SPDX-License-Identifier: Apache-2.0
"""Shorten `tf.nn.safe_embedding_lookup_sparse`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.analysis.sizes import SizeFinder, Symbol
from graph_tools.graph import Graph, Output, attribute
from graph_tools.model import Model
from graph_tools.recognition.lookups.safe_lookup import SEGMENTS, Finders, SafeLookup, find_safe_lookup
from graph_tools.rewriting.add_nodes import add_element, add_first_column, add_picked, add_places, add_zeroed
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output
from graph_tools.rewriting.sizes import add_size, drop_same_shape_reshapes
from graph_tools.rewriting.sweep import sweep

_WHY = "a shorter safe_embedding_lookup_sparse gives the same rows"


class CollapseSafeEmbeddingLookup(SitePass[SafeLookup]):
    """Replace the 60 nodes of a safe_embedding_lookup_sparse by three to ten.

    Before: `SparseReshape → GreaterEqual, Where, Reshape, GatherV2, GatherV2 → SparseFillEmptyRows → Unique →
    ResourceGather → SparseSegmentMean → Shape, StridedSlice, Pack, Tile, ZerosLike, Select → Slice, ConcatV2, Reshape`.
    After: `SparseSegmentMeanWithNumSegments(table, ids, row of each id, rows)`, which gives zeros for rows without ids;
    or, if entries may not be ordered by row, or if a default id fills empty rows,
    `SparseFillEmptyRows → SparseSegmentMean(table, ids, rows) → Select`.

    Ids below zero are dropped as before, by one mask, or by none if no id can be negative. The same kernel adds rows in
    the same order, so scores stay equal bit for bit.
    """

    name = "collapse_safe_embedding_lookup"

    def candidates(self, model: Model) -> Iterable[str]:
        self._written = model.written_variables()
        return [node.name for node in model.graph.of(*SEGMENTS)]

    def match(self, model: Model, site: str) -> Outcome[SafeLookup]:
        finders = Finders(model)
        found = find_safe_lookup(model, site, finders)
        if not isinstance(found, Found):
            return found
        handle = found.value.rows.handle(model.graph)
        if handle is not None and handle.node in self._written:
            return Refused(f"variable '{handle.node}' is written while it is served")
        if _is_short(model, found.value, finders):
            return NoMatch()
        return found

    def rewrite(self, model: Model, site: str, found: SafeLookup) -> None:
        lookup, graph = found, model.graph
        name = lookup.output.node
        if lookup.drops_negative and Finders(model).ranges.is_nonnegative(lookup.ids):
            lookup.mask = None
        if lookup.default is None and lookup.is_ordered(graph):
            made = _add_counted_lookup(model, lookup, name)
        else:
            made = _add_filled_lookup(graph, lookup, name)
        dtype = lookup.rows.dtype(graph)
        replace_output(model, lookup.output, made, dtype, _WHY)
        sweep(model, [lookup.segment.name], _WHY, give_way=True)
        drop_same_shape_reshapes(model, made, _WHY)


def _is_short(model: Model, lookup: SafeLookup, finders: Finders) -> bool:
    """Return whether a lookup cannot be made shorter."""
    graph = model.graph
    if lookup.default is None and lookup.is_ordered(graph):
        return False
    masked = lookup.mask is not None and graph[lookup.fill.inputs[0].node].op != "GatherNd"
    useless = lookup.drops_negative and finders.ranges.is_nonnegative(lookup.ids)
    tiled = lookup.default is None and graph[graph[lookup.output.node].inputs[0].node].op != "ExpandDims"
    unique = lookup.rows.gather.op not in {"SparseLookup", "ReadVariableOp"}
    return not (masked or useless or tiled or unique or lookup.reshapes)


def _add_row_count(model: Model, shape: Output, name: str) -> Output:
    """Add the number of rows of a sparse tensor; sparse tensors made from one batch share it."""
    sizes = SizeFinder(model).vector(shape)
    size = sizes[0] if sizes else None
    if size is not None and (not isinstance(size, Symbol) or size.kind == "size"):
        return add_size(model, size)
    return add_element(model.graph, shape, 0, np.int64, f"{name}/rows")


def _add_counted_lookup(model: Model, lookup: SafeLookup, name: str) -> Output:
    """Add the op that returns a given number of rows, with zeros in rows without ids."""
    graph = model.graph
    ids_dtype = attribute(lookup.fill, "T")
    ids, rows = lookup.ids, add_first_column(graph, lookup.indices, np.int64, f"{name}/row_of_id")
    if lookup.mask is not None:
        places = add_places(graph, lookup.mask, f"{name}/kept")
        ids = add_picked(graph, ids, places, ids_dtype, f"{name}/ids")
        rows = add_picked(graph, rows, places, np.int64, f"{name}/row_of_kept_id")
    count = _add_row_count(model, lookup.shape, name)
    data, numbers, number_dtype = lookup.rows.add_data(graph, ids, name)
    attrs = {"T": lookup.rows.dtype(graph), "Tidx": number_dtype, "Tsegmentids": np.int64, "Tnumsegments": np.int64}
    inputs = [data, numbers, rows, count]
    return graph.add(f"{lookup.segment.op}WithNumSegments", inputs, name=f"{name}/combined", attrs=attrs).output()


def _add_filled_lookup(graph: Graph, lookup: SafeLookup, name: str) -> Output:
    """Add SparseFillEmptyRows, which also sorts entries by row, and a Select if empty rows are zeros."""
    ids_dtype, dtype = attribute(lookup.fill, "T"), lookup.rows.dtype(graph)
    indices, ids = lookup.indices, lookup.ids
    if lookup.mask is not None:
        places = add_places(graph, lookup.mask, f"{name}/kept")
        indices = add_picked(graph, indices, places, np.int64, f"{name}/indices")
        ids = add_picked(graph, ids, places, ids_dtype, f"{name}/ids")
    inputs = [indices, ids, lookup.shape, lookup.fill.inputs[3]]
    fill = graph.add("SparseFillEmptyRows", inputs, name=f"{name}/filled", attrs={"T": ids_dtype})
    rows = add_first_column(graph, fill.output(0), np.int64, f"{name}/row_of_id")
    data, numbers, number_dtype = lookup.rows.add_data(graph, fill.output(1), name)
    attrs = {"T": dtype, "Tidx": number_dtype, "Tsegmentids": np.int64}
    combined = graph.add(lookup.segment.op, [data, numbers, rows], name=f"{name}/combined", attrs=attrs).output()
    if lookup.default is not None:
        return combined
    return add_zeroed(graph, combined, fill.output(2), dtype, name)
