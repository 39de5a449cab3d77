# SPDX-License-Identifier: Apache-2.0
"""Recognize idioms of several nodes between dense layers: activations, layer normalization, gates over experts."""

from __future__ import annotations

from functools import partial

import numpy as np

from graph_tools.analysis.symbolic_shapes import Size
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.live import contiguous
from graph_tools.recognition.activations import Activation, recognize
from graph_tools.recognition.flat_patterns import PRODUCT
from graph_tools.recognition.formula_graph import ENDS, Formulas
from graph_tools.recognition.formulas import NotAFormulaError
from graph_tools.recognition.towers.pieces import Piece, Site, Weight, columns
from graph_tools.rewriting.matcher import Pattern
from graph_tools.rewriting.outcome import Found
from graph_tools.rewriting.pattern import op, through, value
from graph_tools.tensors import Array

#: A formula without one of these is only a scale and an offset.
_BENDS = {
    "Abs", "Erf", "Erfc", "Log", "Maximum", "Minimum", "Relu", "Rsqrt", "Select", "SelectV2", "Sigmoid", "Sqrt", "Tanh",
    "Exp", "Reshape",
}  # fmt: skip


def formula_piece(site: Site, formulas: Formulas, node: Node) -> Piece | None:
    """Recognize an activation or layer normalization that is written with several nodes and ends in this one."""
    if node.op not in ENDS or node.controls or not site.is_float(node):
        return None
    leaves = list(formulas.leaves(node.output()))
    if not any(site.graph[output.node].op in _BENDS for output in [node.output(), *leaves]):
        return None
    for leaf in leaves:
        try:
            formula, nodes = formulas.read(node.output(), leaf)
        except NotAFormulaError:
            continue
        found = recognize(formula)
        piece = None if found is None or len(nodes) < 2 else _piece(site, node, leaf, found, nodes)
        if piece is not None:
            return piece
    return None


def _piece(site: Site, node: Node, x: Output, found: Activation, nodes: set[str]) -> Piece | None:
    sizes = site.shapes.of(x)
    width = sizes[-1].known if sizes else None
    if not width:
        return None
    normed = found.kind == "layer_norm"
    kind = "layer_norm" if normed else "activation"
    piece = Piece(kind, node.output(), (x,), (width,), width, alpha=found.alpha, nodes=nodes)
    piece.activation = None if normed else found.kind
    for name, vector in (found.vectors or {}).items():
        if normed and np.all(vector == (1.0 if name == "gamma" else 0.0)):
            continue
        shape = (width,) if normed or vector.ndim else (1,)
        value = contiguous(np.broadcast_to(vector.astype(np.float32), shape))
        piece.weights[name] = _as_stored(site, nodes, value)
    return piece


def _as_stored(site: Site, nodes: set[str], value: Array) -> Weight:
    """Return the operand of some nodes that contains a vector, or else the vector itself."""
    for node in sorted(nodes):
        for source in site.graph[node].inputs:
            held = site.values.weight(source)
            if held is not None and held.dtype == value.dtype and np.array_equal(held, value):
                return skip(site.graph, source)
    return value


def _gate(site: Site, output: Output, axis: int) -> Output | None:
    """Return the tensor [rows, n] that was expanded by a dimension of size 1 at `axis`, -1 or -2."""
    node = site.graph[output.node]
    if node.op not in {"ExpandDims", "Reshape"} or node.controls:
        return None
    inner = skip(site.graph, node.inputs[0])
    before, after = site.shapes.of(inner), site.shapes.of(output)
    if not before or not after or len(after) != len(before) + 1:
        return None
    at = len(after) + axis
    return inner if after[at] == Size(1) and after[:at] + after[at + 1 :] == before else None


_GATE, _STACK = value(), op("Pack", ...)
_EXPANDED, _TURNED = (through(partial(_gate, axis=axis), _GATE) for axis in (-1, -2))
_TIMES = op("Mul", _STACK, _EXPANDED)
_SUM = op("Sum", _TIMES, ..., keep_dims=False).where(lambda site, output: _sums_experts(site, site.graph[output.node]))
# [rows, 1, n] · [rows, n, units], which gives [rows, 1, units].
_MIX = Pattern(_SUM | op(PRODUCT, _TURNED, _STACK, adj_x=False, adj_y=False))


def _sums_experts(site: Site, node: Node) -> bool:
    sizes, axes = site.shapes.of(site.operand(node, 0)), site.shapes.numbers(node.inputs[1])
    return bool(sizes) and axes in ([len(sizes or ()) - 2], [-2])


def gated_experts(site: Site, node: Node) -> Piece | None:
    """Recognize a gate over experts: `sum(stack(experts, 1) * gate[:, :, None], 1)`, or a product of the two."""
    outcome = _MIX.match(site, node.output())
    if not isinstance(outcome, Found) or not site.is_float(node):
        return None
    match = outcome.value
    nodes = {node.name, *(match[part].node for part in (_STACK, _TIMES) if part in match)}
    return _mix(site, node, match.node(_STACK), match[_GATE], nodes)


def _mix(site: Site, node: Node, stack: Node, gate: Output, nodes: set[str]) -> Piece | None:
    """Return the piece if one expert is stacked for each column of the gate, in the last dimension but one."""
    experts = tuple(skip(site.graph, source) for source in stack.inputs)
    rank = len(site.shapes.of(experts[0]) or ())
    widths = {site.width(expert) for expert in experts}
    width = widths.pop()
    if widths or not width or stack.controls or rank < 2 or attribute(stack, "axis", 0) not in (rank - 1, -2):
        return None
    inputs = (gate, *experts)
    leads = {(site.shapes.of(expert) or ())[:-1] for expert in experts}
    gates = site.shapes.of(gate) or ()
    same = all(len(lead) == len(gates) - 1 and _equal_except_batch(lead, gates[:-1]) for lead in leads)
    if not same or site.width(gate) != len(experts) or columns(site.shapes.of(node.output()), width) is None:
        return None
    if any(columns(site.shapes.of(expert), width) != 1 for expert in experts) or any(map(site.is_constant, inputs)):
        return None
    return Piece("mix", node.output(), inputs, (len(experts), *(width for _ in experts)), width, nodes=nodes)


def _equal_except_batch(first: tuple[Size, ...], second: tuple[Size, ...]) -> bool:
    """Return whether sizes are equal; the first sizes may both be unknown instead, since the batch may be the same."""
    return all(
        a == b or (not axis and (a.known is None and b.known is None))
        for axis, (a, b) in enumerate(zip(first, second, strict=True))
    )
