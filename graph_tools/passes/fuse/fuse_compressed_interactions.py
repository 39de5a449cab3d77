# SPDX-License-Identifier: Apache-2.0
"""Multiply all fields of two tensors, element by element, in one node."""

from __future__ import annotations

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.recognition.flat_patterns import PRODUCT, rank, transposed, view_of
from graph_tools.rewriting.interaction_pass import Fusion, PatternPass, reshapable
from graph_tools.rewriting.matcher import Match, Pattern
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.pattern import expected, op, through, value


def _vectors(flat: Flat, output: Output) -> Output | None:
    """Return the tensor [rows, fields, dim] whose elements are stacked, each as [rows, fields, 1]."""
    stacked = flat.direct(output, "Pack")
    if stacked is None or attribute(stacked, "axis", 0) != 0:
        return None
    parts = [skip(flat.graph, source) for source in stacked.inputs]
    node = flat.graph[parts[0].node]
    if node.controls or node.op not in {"Split", "SplitV"} or parts != [node.output(i) for i in range(len(parts))]:
        return None
    value, axis = (node.inputs[0], node.inputs[2]) if node.op == "SplitV" else (node.inputs[1], node.inputs[0])
    sizes = flat.known(value)
    whole = len(sizes) == 3 and sizes[1] and sizes[2] == len(parts) and flat.shapes.numbers(axis) in ([2], [-1])
    return skip(flat.graph, value) if whole and attribute(node, "num_split", 0) == len(parts) else None


_FIRST, _SECOND = value(), value()
_STACKS = through(_vectors, _FIRST), through(_vectors, _SECOND)
_PRODUCT = op(PRODUCT, *_STACKS).where(rank(4))
_COLUMNS_BY_ROWS = expected(
    op(PRODUCT, ..., adj_x=False, adj_y=bool),
    "'{0.node}' does not multiply columns with rows, expected all products of fields",
)
_PATTERN = Pattern(transposed(view_of(_PRODUCT & _COLUMNS_BY_ROWS), [1, 0, 2]).where(rank(3)))


class FuseCompressedInteractions(PatternPass):
    """Replace the products that are the input of each layer of xDeepFM's compressed interaction network.

    Before: `Transpose(Reshape(BatchMatMul(Pack(SplitV(x0)), Pack(SplitV(x))ᵀ)), [1, 0, 2])`, a product for each element
    of the vectors.
    After: `RecFieldOuter(x0, x)`, [rows, dim, fields of x0 · fields of x].

    The convolution of width 1 after it is a dense layer, which `fuse_dense_towers` fuses. Scores stay equal bit for
    bit.
    """

    name = "fuse_compressed_interactions"

    pattern = _PATTERN

    def fusion(self, flat: Flat, node: Node, match: Match) -> Outcome[Fusion]:
        first, second = match[_FIRST], match[_SECOND]
        if not flat.is_float(first) or not flat.is_float(second):
            return Refused(f"'{first.node}' is not float32")
        fields, others, dim = flat.known(first)[1], flat.known(second)[1], flat.known(first)[2]
        if flat.known(node.output())[1:] != [dim, (fields or 0) * (others or 0)] or flat.known(second)[2] != dim:
            return Refused(f"shape of '{node.name}' is not that of all products")
        if not reshapable(flat, node.output()):
            return Refused(f"shape of '{node.name}' is not known")
        return Found(
            Fusion(node.output(), "RecFieldOuter", [first, second], {}, (None, dim, (fields or 0) * (others or 0)))
        )
