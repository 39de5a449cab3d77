# SPDX-License-Identifier: Apache-2.0
"""Recognize dense layers: products with weights that do not change while serving."""

from __future__ import annotations

import math
import sys

from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.live import contiguous
from graph_tools.recognition.towers.pieces import Piece, Site, Weight, columns
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.tensors import Array

PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "_FusedMatMul", "Conv2D")

_FUSED = {
    "Relu": "relu", "Relu6": "relu6", "Elu": "elu", "Tanh": "tanh", "Sigmoid": "sigmoid", "GeluExact": "gelu",
    "GeluApproximate": "gelu_tanh", "LeakyRelu": "leaky_relu",
}  # fmt: skip


def dense(site: Site, node: Node) -> Outcome[Piece]:
    """Recognize a layer; refuse a product that is not a dense layer."""
    if node.op not in PRODUCTS:
        return NoMatch()
    found = {"Einsum": _einsum, "Conv2D": _conv}.get(node.op, _mat_mul)(site, node)
    dtype = attribute(node, "T").name
    if isinstance(found, Found) and dtype != "float32":
        return Refused(f"'{node.name}' computes in {dtype}, expected float32")
    return found


def _mat_mul(site: Site, node: Node) -> Outcome[Piece]:
    if site.is_constant(node.inputs[0]):
        return Refused(f"the first operand of '{node.name}' is constant, expected the second")
    if attribute(node, "transpose_a", False) or attribute(node, "adj_x", False):
        return Refused(f"'{node.name}' transposes its first operand, expected rows as they are")
    turned = bool(attribute(node, "transpose_b", False) or attribute(node, "adj_y", False))
    found = _kernel(site, node.inputs[1])
    if found is None:
        return Refused(f"weights of '{node.name}' are not constant")
    kernel, shape, transposed = found
    if len(shape) != 2:
        return Refused(f"weights of '{node.name}' have {len(shape)} dimensions, expected 2")
    # If a graph reads a variable transposed, the variable is used as it is stored.
    shape, transposed = (shape[::-1], not transposed) if turned else (shape, transposed)
    piece = _piece(site, node, kernel, shape[0], shape[1], transposed)
    return piece.then(lambda found: _with_fused_ops(site, node, found)) if node.op == "_FusedMatMul" else piece


def _conv(site: Site, node: Node) -> Outcome[Piece]:
    """Recognize a convolution of width 1: `tf.nn.conv1d` with filters [1, k, units]."""
    ones = all(step == 1 for key in ("strides", "dilations") for step in attribute(node, key, [1]))
    padded = attribute(node, "padding", b"VALID") not in (b"VALID", b"SAME")
    if not ones or padded or attribute(node, "data_format", b"NHWC") != b"NHWC":
        return NoMatch()
    output = skip(site.graph, node.inputs[1])
    shape = [size.known for size in site.shapes.of(output) or ()]
    while site.graph[output.node].op in {"ExpandDims", "Reshape"} and not site.graph[output.node].controls:
        output = skip(site.graph, site.graph[output.node].inputs[0])
    found = _kernel(site, output)
    if found is None or len(shape) != 4 or shape[:2] != [1, 1] or not shape[2] or not shape[3] or found[2]:
        return NoMatch()
    matrix = contiguous(read_weight(site, found[0]).reshape((shape[2], shape[3])))
    return _piece(site, node, matrix, shape[2], shape[3], False)


def _piece(site: Site, node: Node, kernel: Weight, k: int, units: int, transposed: bool) -> Outcome[Piece]:
    x = site.operand(node, 0)
    sizes = site.shapes.of(x)
    if sizes is None:
        return Refused(f"shape of '{x.node}' is not known")
    if columns(sizes, k) is None or not k or not units:
        return Refused(f"shape of '{x.node}' is {site.text(x)}, expected rows of {k} elements")
    if columns(site.shapes.of(node.output()), units) is None:
        return Refused(f"shape of '{node.name}' is not known")
    piece = Piece("dense", node.output(), (x,), (k,), units, {"kernel": kernel}, nodes={node.name})
    piece.transpose = transposed
    return Found(piece)


def _kernel(site: Site, output: Output) -> tuple[Output, tuple[int, ...], bool] | None:
    """Return the output with a constant weight, its shape in use, and whether it is stored transposed."""
    output = skip(site.graph, output)
    node = site.graph.source(output)
    if node.op == "Transpose" and not node.controls and site.shapes.numbers(node.inputs[1]) == [1, 0]:
        inner = _kernel(site, node.inputs[0])
        return None if inner is None else (inner[0], inner[1][::-1], not inner[2])
    handle = site.values.handle(output)
    if handle is not None:
        return output, tuple(site.model.variables[handle].shape), False
    if node.op == "Const" and not node.controls:
        shape = attribute(node, "value").tensor_shape
        return output, tuple(int(dimension.size) for dimension in shape.dim), False
    return None


def _with_fused_ops(site: Site, node: Node, piece: Piece) -> Outcome[Piece]:
    names = [name.decode() for name in attribute(node, "fused_ops", [])]
    rest = [name for name in names if name != "BiasAdd"]
    if len(rest) > 1 or any(name not in _FUSED for name in rest) or len(node.inputs) > 3:
        return Refused(f"'{node.name}' does {', '.join(names)}, expected a bias and one activation")
    if "BiasAdd" in names:
        bias = site.values.weight(node.inputs[2])
        if bias is None or bias.shape != (piece.width,):
            return Refused(f"bias of '{node.name}' is not constant")
        piece.weights["bias"] = skip(site.graph, node.inputs[2])
    if rest:
        piece.activation = _FUSED[rest[0]]
        piece.alpha = attribute(node, "leakyrelu_alpha", 0.2) if rest[0] == "LeakyRelu" else None
        piece.onednn = rest[0] in {"Relu", "Relu6"}
    return Found(piece)


def _einsum(site: Site, node: Node) -> Outcome[Piece]:
    """Recognize `ab,bc->ac` and all others that are one product of rows with weights: `...bc,bcde->...de`."""
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    left, _, result = equation.partition("->")
    operands = left.split(",")
    if len(operands) != 2 or len(node.inputs) != 2:
        return NoMatch()
    found = _kernel(site, node.inputs[1])
    if found is None:
        return Refused(f"weights of '{node.name}' are not constant, expected a constant second operand")
    kernel, shape, transposed = found
    x, weights = operands
    inner = "".join(letter for letter in x if letter in weights)
    outer = "".join(weight for weight in weights if weight not in inner)
    lead = x[: len(x) - len(inner)]
    plain = x == lead + inner and result == lead + outer and "." not in weights
    if not plain or not inner or not outer or weights not in (inner + outer, outer + inner):
        return Refused(f"'{node.name}' computes {equation}, expected rows times weights")
    if len(set(x.replace(".", ""))) != len(x.replace(".", "")) or len(set(weights)) != len(weights):
        return Refused(f"'{node.name}' computes {equation}, expected each letter once")
    if len(shape) != len(weights):
        return Refused(f"weights of '{node.name}' have {len(shape)} dimensions, expected {len(weights)}")
    turned = weights != inner + outer
    count = len(inner)
    parts = (shape[len(outer) :], shape[: len(outer)]) if turned else (shape[:count], shape[count:])
    k, units = math.prod(parts[0]), math.prod(parts[1])
    if len(shape) == 2:
        return _piece(site, node, kernel, k, units, transposed != turned)
    matrix = (units, k) if turned else (k, units)
    return _piece(site, node, contiguous(read_weight(site, kernel).reshape(matrix)), k, units, turned)


def read_weight(site: Site, output: Output) -> Array:
    """Return the elements of a constant weight of any size."""
    value = site.values.weight(output, sys.maxsize)
    assert value is not None
    return value
