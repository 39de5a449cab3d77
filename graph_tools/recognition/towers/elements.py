# SPDX-License-Identifier: Apache-2.0
"""Recognize single nodes between dense layers; `idioms` recognizes idioms of several nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graph_tools.analysis.contractions import is_marked
from graph_tools.analysis.symbolic_shapes import Size
from graph_tools.graph import Node, Output, attribute
from graph_tools.recognition.towers.pieces import Piece, Site, Weight, columns

_ACTIVATIONS = {
    "Relu": "relu", "Relu6": "relu6", "LeakyRelu": "leaky_relu", "Elu": "elu", "Selu": "selu", "Sigmoid": "sigmoid",
    "Tanh": "tanh", "Softplus": "softplus",
}  # fmt: skip


def element(site: Site, node: Node) -> Piece | None:
    """Recognize a node that computes each float32 row independently."""
    rule = _RULES.get(node.op)
    return rule(site, node) if rule and site.is_float(node) else None


def _activation(site: Site, node: Node) -> Piece | None:
    x = site.operand(node, 0)
    width = site.last(x) if node.op == "Softmax" else site.width(x)
    if not width:
        return None
    piece = Piece("activation", node.output(), (x,), (width,), width, nodes={node.name})
    piece.activation = "softmax" if node.op == "Softmax" else _ACTIVATIONS[node.op]
    piece.onednn = is_marked(node)
    if node.op == "LeakyRelu":
        piece.alpha = float(attribute(node, "alpha", 0.2))
    return piece


def _add_or_multiply(site: Site, node: Node) -> Piece | None:
    return _with_vector(site, node) or _of_tensors(site, node)


def _with_vector(site: Site, node: Node) -> Piece | None:
    """Recognize a bias or a scale."""
    if attribute(node, "data_format", b"NHWC") != b"NHWC":
        return None
    side = 1 if site.is_constant(node.inputs[1]) else 0
    x = site.operand(node, 1 - side)
    width = site.width(x)
    if not width or not site.is_constant(node.inputs[side]) or site.is_constant(x):
        return None
    vector = site.vector(node.inputs[side], x)
    weights = None if vector is None else _affine(site, node.op, vector, side)
    if weights is None or site.shapes.of(x) != site.shapes.of(node.output()):
        return None
    return Piece("affine", node.output(), (x,), (width,), width, weights, nodes={node.name})


def _affine(site: Site, op: str, vector: Weight, side: int) -> dict[str, Weight] | None:
    """Return the scale or shift of x if `op` combines it with a vector on one side."""
    if op == "Mul":
        return {"scale": vector}
    if op not in {"Sub", "Div", "RealDiv"}:
        return {"shift": vector}
    if op == "Sub" and not side:
        return {"scale": np.full(1, -1.0, np.float32), "shift": vector}
    value = site.values.weight(vector) if isinstance(vector, Output) else vector
    if value is None or not side or (op != "Sub" and not np.all(value)):
        return None
    return {"shift": -value} if op == "Sub" else {"scale": np.float32(1.0) / value}


def _of_tensors(site: Site, node: Node) -> Piece | None:
    if node.op == "Sub":
        return _difference(site, node)
    if node.op not in {"Add", "AddV2", "AddN", "Mul", "Square"}:
        return None
    inputs = tuple(site.operand(node, i) for i in range(len(node.inputs)))
    if node.op == "Square":
        inputs *= 2
    kind = "add" if node.op.startswith("Add") else "multiply"
    if any(site.is_constant(source) for source in inputs):
        return None
    if kind == "multiply" and len(inputs) == 2:
        gated = _gate(site, node, inputs)
        if gated is not None:
            return gated
    width = site.common_width((*inputs, node.output()))
    if not width or not site.same_shape(*inputs):
        return None
    return Piece(kind, node.output(), inputs, (width,) * len(inputs), width, nodes={node.name})


def _difference(site: Site, node: Node) -> Piece | None:
    """Recognize a difference; layers then add the negated operand."""
    inputs = (site.operand(node, 0), site.operand(node, 1))
    width = site.common_width(inputs)
    if not width or not site.same_shape(*inputs):
        return None
    return Piece("subtract", node.output(), inputs, (width, width), width, nodes={node.name})


def _gate(site: Site, node: Node, inputs: tuple[Output, ...]) -> Piece | None:
    """Recognize the product of a row with one number for each row."""
    for gate, x in (inputs, inputs[::-1]):
        gate_shape, shape = site.shapes.of(gate), site.shapes.of(x)
        width = site.width(x)
        fits = (
            gate_shape
            and shape
            and len(gate_shape) == len(shape)
            and gate_shape[:-1] == shape[:-1]
            and gate_shape[-1] == Size(1)
        )
        if fits and width and width > 1 and site.width(gate) == 1 and columns(shape, width) == 1:
            return Piece("mix", node.output(), (gate, x), (1, width), width, nodes={node.name})
    return None


def _concat(site: Site, node: Node) -> Piece | None:
    axis = site.shapes.numbers(node.inputs[-1])
    inputs = tuple(site.operand(node, i) for i in range(len(node.inputs) - 1))
    found = [site.shapes.of(source) for source in inputs]
    if not axis or not found[0] or axis[0] % len(found[0]) != len(found[0]) - 1:
        return None
    widths = [site.last(source) for source in inputs]
    if not all(widths):
        return None
    # Concatenation itself checks, for each request, that sizes that are not known before are equal.
    first = (found[0] or ())[:-1]
    if any(map(site.is_constant, inputs)) or not all(_equal_where_known(first, (shape or ())[:-1]) for shape in found):
        return None
    known = tuple(width or 0 for width in widths)
    return Piece("concat", node.output(), inputs, known, sum(known), nodes={node.name})


def _equal_where_known(first: tuple[Size, ...], second: tuple[Size, ...]) -> bool:
    """Return whether two shapes have the same rank, and no sizes that are known to differ."""
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(a.known is None or b.known is None or a == b for a, b in pairs)


def _view(site: Site, node: Node) -> Piece | None:
    x = site.operand(node, 0)
    before, after = site.shapes.of(x), site.shapes.of(node.output())
    width = site.width(x) if x in site.pieces else None
    if width is None or columns(after, width) is None:
        # The rows of another op, or of a tower that ends here.
        width = site.last(x)
        if not width or columns(before, width) != 1 or columns(after, width) != 1:
            return None
    return Piece("view", node.output(), (x,), (width,), width, nodes={node.name})


_RULES: dict[str, Callable[[Site, Node], Piece | None]] = {
    **dict.fromkeys([*_ACTIVATIONS, "Softmax"], _activation),
    **dict.fromkeys(("Add", "AddV2", "BiasAdd", "Mul", "RealDiv", "Div", "Sub"), _add_or_multiply),
    **dict.fromkeys(("AddN", "Square"), _of_tensors),
    **dict.fromkeys(("Reshape", "Squeeze", "ExpandDims"), _view),
    "ConcatV2": _concat,
}
