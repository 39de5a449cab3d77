# SPDX-License-Identifier: Apache-2.0
"""Recognise single layers of cross networks."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.tensors import Array

_ADDS = ("Add", "AddV2", "AddN", "BiasAdd")
_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")


@dataclass
class CrossLayer:
    """`x0 · (x · w) + bias + x`, or `x0 ∘ (x W + bias) + x`.

    Attributes
    ----------
    root : Output
    given : Output
        x0 as the layer takes it.
    start, x : Output
        Where the elements of x0 and x come from.
    width : int
    version : str
        `vector`, `matrix` or `low_rank`.
    kernels : list of Output or ndarray
    bias : Output, ndarray or None
    transposed : bool
    nodes : set of str
        What the layer consists of, as far as others may use it.
    """

    root: Output
    given: Output
    start: Output
    x: Output
    width: int
    version: str
    kernels: list[Output | Array]
    bias: Output | Array | None = None
    transposed: bool = False
    nodes: set[str] = field(default_factory=set)


@dataclass
class _Linear:
    """A product of x with constant weights, the bias included."""

    x: Output
    version: str
    kernels: list[Output | Array]
    bias: Output | Array | None = None
    transposed: bool = False
    nodes: set[str] = field(default_factory=set)


def cross_layer(flat: Flat, node: Node) -> CrossLayer | str | None:
    """Recognise a layer by its last node, the sum."""
    if node.op not in _ADDS:
        return None
    root = node.output()
    width = _width(flat, root)
    if not width:
        return None
    tensors, vectors, nodes = _addends(flat, root)
    if len(tensors) != 2:
        return None
    for product, x in (tensors, tensors[::-1]):
        for start, factor in _factors(flat, product, root):
            linear = _linear(flat, factor, x, width)
            if linear is None:
                continue
            refusal = _disagreement(flat, root, linear, vectors)
            if refusal:
                return refusal
            bias = linear.bias if not vectors else vectors[0]
            nodes |= linear.nodes | {product.node}
            return CrossLayer(
                root,
                start,
                flat.source(start),
                flat.source(x),
                width,
                linear.version,
                linear.kernels,
                bias,
                linear.transposed,
                nodes,
            )
    return None


def _width(flat: Flat, output: Output) -> int | None:
    """Count the elements of a row, where all but one size after the first are 1."""
    sizes = flat.known(output)[1:]
    rest = [one for one in sizes if one != 1]
    if not sizes or len(rest) > 1:
        return None
    return rest[0] if rest else 1


def _disagreement(flat: Flat, root: Output, linear: _Linear, vectors: list[Output | Array]) -> str:
    if not flat.is_float(root):
        return f"'{root.node}' is not float32"
    if len(vectors) > 1:
        return f"{len(vectors)} biases are added, expected one"
    if linear.version != "vector" and vectors:
        return "a bias is added after the product with x0, expected it before"
    if linear.version == "vector" and linear.bias is not None:
        return "a bias is added before the product with x0, expected it after"
    return ""


def _addends(flat: Flat, root: Output) -> tuple[list[Output], list[Output | Array], set[str]]:
    """List what is added up: tensors, and constant vectors. A sum that something else uses too is a tensor."""
    tensors: list[Output] = []
    vectors: list[Output | Array] = []
    nodes: set[str] = set()
    waiting = [root]
    while waiting:
        output = skip(flat.graph, waiting.pop(0))
        node = flat.direct(output, *_ADDS)
        vector = None if output == root else flat.row_vector(output, root)
        if vector is not None:
            vectors.append(vector)
        elif node is not None and (output == root or flat.only_user(output) is not None):
            nodes.add(node.name)
            waiting += node.inputs
        else:
            tensors.append(output)
    return tensors, vectors, nodes


def _factors(flat: Flat, product: Output, root: Output) -> list[tuple[Output, Output]]:
    """List (x0, factor) of a product: element by element, or of rows with one number for each row."""
    node = flat.direct(product, "Mul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
    if node is None or flat.sizes(product) != flat.sizes(root):
        return []
    one, two = (skip(flat.graph, each) for each in node.inputs)
    if node.op != "Mul":
        # [rows, width, 1] · [rows, 1, 1]
        ones = len(flat.known(two)) == 3 and flat.known(two)[1:] == [1, 1] and flat.known(one)[2:] == [1]
        return [(one, two)] if ones and not flat.adjoined(node) else []
    whole = flat.sizes(product)
    found = []
    for start, factor in ((one, two), (two, one)):
        if flat.sizes(start) == whole and len(flat.known(factor)) == len(whole or ()):
            found.append((start, factor))
    return found


def _linear(flat: Flat, output: Output, x: Output, width: int) -> _Linear | None:
    """Recognise a product of x with constant weights and what is added to that."""
    node = flat.direct(output, *_ADDS)
    if node is not None:
        for side, other in ((0, 1), (1, 0)):
            bias = None if len(node.inputs) != 2 else flat.row_vector(node.inputs[other], output)
            inner = None if bias is None else _linear(flat, node.inputs[side], x, width)
            if inner is not None and inner.bias is None:
                inner.bias = bias
                inner.nodes.add(node.name)
                return inner
        return None
    node = flat.node(output, *_PRODUCTS, "Einsum", "Sum")
    if node is None:
        return None
    nodes = {one.node for one in flat.views(output)}
    if node.op == "Sum":
        return _summed(flat, node, output, x, width, nodes)
    if node.op == "Einsum":
        return _einsum(flat, node, x, width, nodes)
    kernel = flat.kernel(node.inputs[1])
    if kernel is None or attribute(node, "transpose_a", False) or attribute(node, "adj_x", False):
        return None
    turned = flat.adjoined(node)
    shape = kernel[1][::-1] if turned else kernel[1]
    if flat.same(node.inputs[0], x) and shape == [width, 1] and _one_per_row(flat, output):
        return _Linear(x, "vector", [kernel[0]], nodes=nodes)
    if _width(flat, output) != width or len(shape) != 2 or shape[1] != width:
        return None
    if flat.same(node.inputs[0], x) and shape[0] == width:
        return _Linear(x, "matrix", [kernel[0]], transposed=turned, nodes=nodes)
    thin = flat.node(node.inputs[0], "MatMul")
    first = None if thin is None else flat.kernel(thin.inputs[1])
    if thin is None or first is None or not flat.same(thin.inputs[0], x):
        return None
    second_turned = flat.adjoined(thin)
    if second_turned != turned or attribute(thin, "transpose_a", False):
        return None
    if (first[1][::-1] if turned else first[1]) != [width, shape[0]]:
        return None
    nodes |= {one.node for one in flat.views(node.inputs[0])}
    return _Linear(x, "low_rank", [first[0], kernel[0]], transposed=turned, nodes=nodes)


def _one_per_row(flat: Flat, output: Output) -> bool:
    """Say whether a product has one number for each row of a batch, in this shape."""
    sizes = flat.known(output)
    return len(sizes) > 1 and all(one == 1 for one in sizes[1:])


def _summed(flat: Flat, node: Node, output: Output, x: Output, width: int, nodes: set[str]) -> _Linear | None:
    """`Sum(x * w, -1)`."""
    times = flat.direct(node.inputs[0], "Mul")
    sizes = flat.known(node.inputs[0])
    if times is None or _width(flat, times.output()) != width or not _one_per_row(flat, output):
        return None
    axes = flat.reduced(node)
    if axes is None or 0 in axes or not all(one in axes or sizes[one] == 1 for one in range(1, len(sizes))):
        return None
    for side, other in ((0, 1), (1, 0)):
        kernel = flat.row_vector(times.inputs[other], times.output())
        if kernel is not None and flat.same(times.inputs[side], x):
            return _Linear(x, "vector", [kernel], nodes=nodes | {times.name})
    return None


def _einsum(flat: Flat, node: Node, x: Output, width: int, nodes: set[str]) -> _Linear | None:
    """`ij,bjk->bik`, k being of size 1, and the like: one letter of x gives way to one of the weights."""
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    left, _, result = equation.partition("->")
    letters = left.split(",")
    if len(letters) != 2 or "." in equation:
        return None
    for side in (0, 1):
        kernel = flat.kernel(node.inputs[side])
        weights, rows = letters[side], letters[1 - side]
        if kernel is None or kernel[1] != [width, width] or len(set(weights)) != 2 or len(weights) != 2:
            continue
        shared = [one for one in weights if one in rows]
        if len(shared) != 1 or len(set(rows)) != len(rows) or not flat.same(node.inputs[1 - side], x):
            continue
        other = weights.replace(shared[0], "")
        if result == rows.replace(shared[0], other) and rows.index(shared[0]) > 0:
            return _Linear(x, "matrix", [kernel[0]], transposed=weights[1] == shared[0], nodes=nodes)
    return None
