# SPDX-License-Identifier: Apache-2.0
"""Follow rows with several values each through tensors that have an entry for each value.

`Where(x ≠ '')` lists the places of values row by row, `GatherNd` reads the values, lookups map each value to its row,
and a sum of segments makes rows again. If all rows are equal, these tensors are equal lists one after another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graph_tools.analysis.row_facts import NUMBERS, PLACES, VALUES, Entries, RowFacts, is_number_of_rows
from graph_tools.analysis.row_rules import BROADCASTS, SAME_SHAPE
from graph_tools.analysis.symbolic_shapes import Size
from graph_tools.graph import Node, Output, attribute

Found = dict[int, Entries | Size]

_BEGIN = {"Where", "SparseFillEmptyRows"}
_SEGMENTS = {"SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum"}


def has_entries(rows: RowFacts, node: Node) -> bool:
    """Return whether a node lists entries, or has an input with entries."""
    return node.op in _BEGIN or any(source in rows.entries for source in node.inputs)


def entries_of(rows: RowFacts, node: Node) -> Found | None:
    """Return the kind of outputs, by port: entries, or rows with their first size; None if rows may be mixed."""
    rule = _RULES.get(node.op)
    return rule(rows, node) if rule else None


def _where(rows: RowFacts, node: Node) -> Found | None:
    return {0: Entries(PLACES, node.output())} if rows.has_rows(node.inputs[0]) else None


def _gather_nd(rows: RowFacts, node: Node) -> Found | None:
    values, places = node.inputs
    entries = rows.entries.get(places)
    return {0: replace(entries, kind=VALUES)} if entries and entries.kind == PLACES and rows.has_rows(values) else None


def _slice(rows: RowFacts, node: Node) -> Found | None:
    """Follow `places[:, i]`, and slices of all values."""
    entries = rows.entries.get(node.inputs[0])
    begin, step = (rows.numbers(node.inputs[i]) for i in (1, 3))
    masks = ("begin_mask", "end_mask", "shrink_axis_mask", "ellipsis_mask", "new_axis_mask")
    open_begin, open_end, shrink, ellipsis, new = (attribute(node, key, 0) for key in masks)
    starts = begin and (open_begin & 1 or begin[0] == 0)
    if entries is None or not begin or not starts or not open_end & 1 or not step or step[0] != 1 or ellipsis:
        return None
    if entries.kind == VALUES:
        return None if (shrink | new) & 1 else {0: entries}
    if entries.kind == PLACES and (len(begin), shrink, new) == (2, 2, 0):
        return {0: replace(entries, kind=VALUES if begin[1] else NUMBERS)}
    return None


def _expand_dims(rows: RowFacts, node: Node) -> Found | None:
    axis = rows.numbers(node.inputs[1])
    return _common_entries(rows, node.inputs[:1]) if axis and axis[0] > 0 else None


def _same(rows: RowFacts, node: Node) -> Found | None:
    entries = rows.entries.get(node.inputs[0])
    if entries is None or not all(map(rows.is_free, node.inputs[1:])):
        return None
    return {0: entries} if entries.kind == VALUES or node.op in {"Cast", "Identity"} else None


def _elementwise(rows: RowFacts, node: Node) -> Found | None:
    """Follow ops that combine values of an entry with each other, or with values that are the same for all entries."""
    others = [source for source in node.inputs if not rows.is_free(source)]
    shapes = [rows.of(source) for source in node.inputs]
    known = [shape for shape in shapes if shape is not None]
    rank = max(map(len, known), default=0)
    for source, sizes in zip(node.inputs, shapes, strict=True):
        if sizes is None or (len(sizes) == rank) != (source in others):
            return None
    return _common_entries(rows, others)


def _common_entries(rows: RowFacts, outputs: list[Output]) -> Found | None:
    found = {rows.entries.get(output) for output in outputs}
    entries = found.pop() if len(found) == 1 else None
    return {0: entries} if entries is not None and entries.kind == VALUES else None


def _lookup(rows: RowFacts, node: Node) -> Found | None:
    """Follow ids to rows of a table."""
    if attribute(node, "batch_dims", 0) or (node.op == "GatherV2" and rows.numbers(node.inputs[2]) != [0]):
        return None
    if not all(map(rows.is_free, [node.inputs[0], *node.inputs[2:]])):
        return None
    return _common_entries(rows, node.inputs[1:2])


def _sparse_segments(rows: RowFacts, node: Node) -> Found | None:
    """Follow sums of rows of a table: a requested number of sums, or one per row if each row has an entry."""
    numbers, ids = rows.entries.get(node.inputs[2]), rows.entries.get(node.inputs[1])
    if not rows.is_free(node.inputs[0]) or ids is None or ids.kind != VALUES:
        return None
    return _sums(rows, numbers, ids, node.inputs[3:])


def _segments(rows: RowFacts, node: Node) -> Found | None:
    data, numbers = (rows.entries.get(source) for source in node.inputs[:2])
    return _sums(rows, numbers, data, node.inputs[2:])


def _sums(rows: RowFacts, numbers: Entries | None, values: Entries | None, count: list[Output]) -> Found | None:
    if numbers is None or values is None or numbers.kind != NUMBERS or values != replace(numbers, kind=VALUES):
        return None
    if count:
        asked = rows.value(count[0])
        return {0: asked[0]} if asked and is_number_of_rows(asked[0]) else None
    filled = rows.graph[numbers.of.node].op == "SparseFillEmptyRows"
    return {0: rows.filled[numbers.of]} if filled else None


def _fill(rows: RowFacts, node: Node) -> Found | None:
    """Follow entries after an entry is added for each row that has none."""
    places, values = (rows.entries.get(source) for source in node.inputs[:2])
    shape = rows.value(node.inputs[2])
    if places is None or values is None or places.kind != PLACES or values != replace(places, kind=VALUES):
        return None
    if not shape or not is_number_of_rows(shape[0]) or not rows.is_free(node.inputs[3]):
        return None
    rows.filled[node.output()] = shape[0]
    return {0: Entries(PLACES, node.output()), 1: Entries(VALUES, node.output()), 2: shape[0]}


Rule = Callable[["RowFacts", Node], Found | None]

_RULES: dict[str, Rule] = {
    **dict.fromkeys(SAME_SHAPE, _same),
    **dict.fromkeys(BROADCASTS | {"StringJoin"}, _elementwise),
    **dict.fromkeys(("Gather", "GatherV2", "LookupTableFindV2", "ResourceGather"), _lookup),
    **dict.fromkeys([*_SEGMENTS, *(f"{segment_op}WithNumSegments" for segment_op in _SEGMENTS)], _sparse_segments),
    **dict.fromkeys(("SegmentMean", "SegmentSum", "UnsortedSegmentSum"), _segments),
    "ExpandDims": _expand_dims,
    "GatherNd": _gather_nd,
    "SparseFillEmptyRows": _fill,
    "StridedSlice": _slice,
    "Where": _where,
}
