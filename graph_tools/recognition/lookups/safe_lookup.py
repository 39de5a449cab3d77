# SPDX-License-Identifier: Apache-2.0
"""Recognize the nodes that `safe_embedding_lookup_sparse` and feature columns create for one lookup.

    indices, ids, shape → SparseReshape … → entries with ids >= 0 → SparseFillEmptyRows
    its indices → column 0 ─────────┐
    its ids → Unique → gather → SparseSegment* → Select → Reshape
    its empty rows → Reshape → Tile ───────────────┘

Variants without some of these nodes (no reshape, no check of ids, a default id instead of the Select) are recognized.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import EllipsisType

import numpy as np

from graph_tools.analysis.ranges import RangeFinder
from graph_tools.analysis.sizes import SizeFinder
from graph_tools.graph import (
    Graph,
    Node,
    Output,
    attribute,
    constant,
    constant_list,
    first_column,
    is_constant,
    operand,
    skip,
    source,
)
from graph_tools.model import Model
from graph_tools.rewriting.add_nodes import read_variable
from graph_tools.rewriting.chains import chain_between, clone_chain
from graph_tools.rewriting.matcher import GraphFacts, Pattern
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import Op, Value, const, integers, op, repeated, through, value

SEGMENTS = ("SparseSegmentMean", "SparseSegmentSum", "SparseSegmentSqrtN")
_ORDERED = {
    "ParseExample", "ParseExampleV2", "ParseSingleExample", "RaggedTensorToSparse", "SparseCross", "SparseCrossHashed",
    "SparseCrossV2", "SparseFillEmptyRows", "SparseReorder", "StringSplit", "StringSplitV2", "Where",
}  # fmt: skip


class Finders(GraphFacts):
    """Analyses of a graph that are made once and are valid until the graph changes."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.graph)
        self.sizes, self.ranges = SizeFinder(model), RangeFinder(model)


@dataclass
class Rows:
    """Rows of a table for each of some ids: `gather(chain(ids))`.

    Attributes
    ----------
    ids : Output [n] integer or string
        The ids of the idiom, before `Unique`.
    begin, end : Output
        The ends of the chain: the output of `Unique`, and the input of the gather.
    chain : list of Node
        The nodes from `begin` to `end`; often none.
    gather : Node
        ResourceGather, GatherV2 of a variable's value, SparseLookup, or the read of a whole variable.
    """

    ids: Output
    begin: Output
    end: Output
    chain: list[Node]
    gather: Node

    def numbers(self, graph: Graph, ids: Output) -> Output:
        """Return the gather's input for other ids."""
        return clone_chain(graph, self.chain, self.begin, self.end, ids)

    def handle(self, graph: Graph) -> Output | None:
        """Return the variable's handle; None for a table with keys."""
        if self.gather.op == "SparseLookup":
            return None
        if self.gather.op == "GatherV2":
            return skip(graph, graph[operand(graph, self.gather, 0).node].inputs[0])
        return skip(graph, self.gather.inputs[0])

    def add_gather(self, graph: Graph, ids: Output, ids_dtype: object, name: str) -> Output:
        """Add a lookup of the rows of other ids."""
        numbers, handle = self.numbers(graph, ids), self.handle(graph)
        if handle is None:
            inputs = [numbers, *self.gather.inputs[1:]]
            return graph.add("SparseLookup", inputs, name=name, attrs=dict(self.gather.attrs)).output()
        attrs = {"dtype": self.dtype(graph), "Tindices": ids_dtype, "batch_dims": 0, "validate_indices": True}
        return graph.add("ResourceGather", [handle, numbers], name=name, attrs=attrs).output()

    def add_data(self, graph: Graph, ids: Output, name: str) -> tuple[Output, Output, object]:
        """Return the inputs of an op on segments: rows, the row number for each id, and the dtype of these numbers."""
        handle = self.handle(graph)
        if handle is not None:
            data = read_variable(graph, handle, self.dtype(graph), f"{name}/table")
            return data, self.numbers(graph, ids), self.number_dtype
        attrs = {"T": attribute(self.gather, "Tkeys"), "out_idx": np.int32}
        unique = graph.add("Unique", [ids], name=f"{name}/unique", attrs=attrs)
        return self.add_gather(graph, unique.output(), None, f"{name}/rows"), unique.output(1), np.int32

    def dtype(self, graph: Graph) -> object:
        """Return the dtype of a row's elements."""
        return attribute(self.gather, "Tparams") if self.gather.op == "GatherV2" else attribute(self.gather, "dtype")

    number_dtype: object = None


@dataclass
class SafeLookup:
    """One lookup whose rows without ids are filled.

    Attributes
    ----------
    segment : Node
        SparseSegmentMean, -Sum or -SqrtN.
    output : Output [rows, dim]
        The output of the Select that sets empty rows to zeros, or of `segment` if a default id fills them.
    fill : Node
        SparseFillEmptyRows.
    indices, ids, shape : Output
        The sparse tensor that is looked up, before entries are dropped: [n, 2] int64, [n], [2] int64.
    mask : Output [n] bool or None
        The entries that stay; None: all.
    drops_negative : bool
        Whether `mask` keeps exactly the ids that are not negative.
    default : Output or None
        Id for empty rows; None: zeros.
    rows : Rows
    dim : int
    """

    segment: Node
    output: Output
    fill: Node
    indices: Output
    ids: Output
    shape: Output
    mask: Output | None
    drops_negative: bool
    default: Output | None
    rows: Rows
    dim: int
    reshapes: list[Node] = field(default_factory=list)

    def is_ordered(self, graph: Graph) -> bool:
        """Return whether the rows of the entries never decrease, in every request."""
        outcome = _BEFORE_DROPS.match(GraphFacts(graph), self.indices)
        return isinstance(outcome, Found) and outcome.value.node(_INDICES).op in _ORDERED


def _op(ops: str, *inputs: Value | EllipsisType) -> Op:
    """Match a node of the idiom; nodes for which it waits, for example a check of ids, are removed with it."""
    return op(ops, *inputs, waits=True)


def kept(x: Value) -> Value:
    """Match the elements of x at the places at which `MASK` is true."""
    places = _op("Where", MASK)
    vector = _op("Reshape", places, const(-1)) | _op("Squeeze", places)
    return _op("GatherNd", x, places) | _op("GatherV2", x, vector, const(0))


def zeroed(rows: Value, fill: Op) -> Value:
    """Match the Select that sets those rows to zeros that, according to `fill`, were empty."""
    empty = fill.output(2)
    column = _op("Reshape", empty, integers(-1, 1)) | _op("ExpandDims", empty, const(1, -1))
    zeros = value().where(lambda facts, output: is_zeros(facts.graph, output))
    return _op("Select|SelectV2", empty | column | _op("Tile", column, ...), zeros, rows)


MASK, IDS = value(), value()
_INDICES, _SHAPE = value(), value()
_FILL = _op("SparseFillEmptyRows", ...)
_ENTRIES = _op("SparseFillEmptyRows", kept(_INDICES), kept(IDS), ...) | _op("SparseFillEmptyRows", _INDICES, IDS, ...)
_SPARSE = _FILL & _op("SparseFillEmptyRows", ..., _SHAPE, value()) & _ENTRIES
_FIRST_COLUMN = through(lambda facts, output: first_column(facts.graph, output), _SPARSE)
_SEGMENT = _op("|".join(SEGMENTS), ..., _FIRST_COLUMN)
_LOOKUP, _ZEROED = Pattern(_SEGMENT), zeroed(_SEGMENT, _FILL)
_NOT_NEGATIVE = Pattern(_op("GreaterEqual", IDS, const(0)))
_BEFORE_DROPS = Pattern(repeated(lambda indices: kept(indices) | _op("SparseReshape", indices, ...), _INDICES))


def find_safe_lookup(model: Model, site: str, finders: Finders) -> Outcome[SafeLookup]:
    """Recognize the lookup that ends in a SparseSegment op."""
    graph, sizes, segment = model.graph, finders.sizes, model.graph[site]
    outcome = _LOOKUP.match(finders, segment.output())
    if not isinstance(outcome, Found):
        return outcome
    match, fill = outcome.value, outcome.value.node(_FILL)
    rows = find_rows(model, segment.inputs[0], segment.inputs[1], finders)
    if not isinstance(rows, Found):
        return rows
    if skip(graph, rows.value.ids) != fill.output(1):
        return Refused(f"ids come from '{rows.value.ids}', rows from '{fill.name}': expected one sparse tensor")
    data = sizes.of(segment.inputs[0])
    if data is None or len(data) != 2 or not isinstance(data[1], int):
        return Refused(f"rows of '{segment.inputs[0]}' have no known length, expected a matrix of known width")
    if constant(graph, fill.inputs[3]) is None:
        return Refused(f"default id '{fill.inputs[3]}' is not a constant")
    mask = match.get(MASK)
    indices, shape, reshapes = peel_reshapes(graph, match[_INDICES], match[_SHAPE], sizes)
    select = match.above(_ZEROED)
    output, default = (segment.output(), fill.inputs[3]) if select is None else (select[_ZEROED], None)
    negative = mask is not None and isinstance(_NOT_NEGATIVE.match(finders, mask, {IDS: match[IDS]}), Found)
    found = SafeLookup(
        segment, output, fill, indices, match[IDS], shape, mask, negative, default, rows.value, data[1], reshapes
    )
    width, axes = sizes.of(found.indices), sizes.vector(found.shape)
    if (width is None or width[-1] != 2) and (axes is None or len(axes) != 2):
        return Refused(f"sparse tensor of '{found.indices}' is not known to have two axes")
    return Found(found)


def find_rows(model: Model, data: Output, numbers: Output, finders: Finders) -> Outcome[Rows]:
    """Recognize how the rows of an op on segments are looked up."""
    graph = model.graph
    numbers = skip(graph, numbers)
    gather = source(graph, data, "ResourceGather", "GatherV2", "SparseLookup", "ReadVariableOp")
    if gather is None:
        return NoMatch()
    if gather.op == "ReadVariableOp":
        found = Rows(numbers, numbers, numbers, [], gather)
        found.number_dtype = attribute_of_numbers(graph, numbers, np.int64)
        return Found(found)
    unique = graph[numbers.node]
    if unique.op != "Unique" or numbers.port != 1:
        return NoMatch()
    if gather.op == "GatherV2" and (
        constant_list(graph, gather.inputs[2]) != [0] or source(graph, gather.inputs[0], "ReadVariableOp") is None
    ):
        return Refused(f"'{gather.name}' does not gather from a variable")
    if attribute(gather, "batch_dims", 0):
        return Refused(f"'{gather.name}' has batch dimensions")
    end = gather.inputs[0 if gather.op == "SparseLookup" else 1]
    chain: list[Node] = []
    if skip(graph, end) != unique.output(0):
        between = chain_between(graph, unique.output(0), end)
        if not isinstance(between, Found):
            return between
        chain = between.value
    found = Rows(unique.inputs[0], unique.output(0), skip(graph, end), chain, gather)
    if gather.op != "SparseLookup":
        found.number_dtype = attribute(gather, "Tindices")
    return Found(found)


def attribute_of_numbers(graph: Graph, numbers: Output, default: object) -> object:
    """Return the dtype of row numbers from the attribute of an op on segments that uses them, or `default`."""
    for user, index in graph.uses(numbers):
        if index == 1 and user.op in SEGMENTS:
            return attribute(user, "Tidx")
    return default


def peel_reshapes(graph: Graph, indices: Output, shape: Output, sizes: SizeFinder) -> tuple[Output, Output, list[Node]]:
    """Return indices and shape before SparseReshapes that change nothing, and these SparseReshapes."""
    peeled: list[Node] = []
    while True:
        node = graph[skip(graph, indices).node]
        if node.op != "SparseReshape" or skip(graph, shape) != node.output(1) or not sizes.is_same_shape(node):
            return indices, shape, peeled
        peeled.append(node)
        indices, shape = operand(graph, node, 0), operand(graph, node, 1)


def is_zeros(graph: Graph, output: Output) -> bool:
    """Return whether every element is zero."""
    node = graph[skip(graph, output).node]
    if node.op == "ZerosLike":
        return True
    if node.op == "Fill":
        return is_constant(graph, node.inputs[1], 0)
    array = constant(graph, output)
    return array is not None and array.dtype.kind == "f" and not array.any()
