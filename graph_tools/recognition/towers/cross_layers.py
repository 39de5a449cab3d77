# SPDX-License-Identifier: Apache-2.0
"""Recognize single layers of cross networks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.recognition.flat_patterns import PRODUCT, view_of
from graph_tools.rewriting.matcher import Match, Pattern
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import op, value
from graph_tools.tensors import Array

_ADDS = ("Add", "AddV2", "AddN", "BiasAdd")
_PRODUCTS = f"MatMul|{PRODUCT}"


@dataclass
class CrossLayer:
    """A layer `x0 · (x · w) + bias + x`, or `x0 ∘ (x W + bias) + x`.

    Attributes
    ----------
    root : Output
    given : Output
        The layer's operand x0.
    start, x : Output
        The origin of the elements of x0 and x.
    width : int
    version : str
        `vector`, `matrix` or `low_rank`.
    kernels : list of Output or ndarray
    bias : Output, ndarray or None
    transposed : bool
    nodes : set of str
        The nodes of the layer.
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


# x times constant weights, in four forms, and a bias.
_X, _KERNEL, _THIN_KERNEL = value(), value().where(Flat.kernel), value().where(Flat.kernel)
_GIVEN = view_of(_X)
_MULTIPLIED = op(_PRODUCTS, _GIVEN, _KERNEL, transpose_a=False, adj_x=False)
_THIN = op("MatMul", _GIVEN, _THIN_KERNEL, transpose_a=False)
_THIN_VIEW = view_of(_THIN)
_TWICE = op(_PRODUCTS, _THIN_VIEW, _KERNEL, transpose_a=False, adj_x=False)
_ROW, _BIAS = value().where(Flat.is_constant), value().where(Flat.is_constant)
_TIMES = op("Mul", _GIVEN, _ROW)
_SUMMED = op("Sum", _TIMES, ...)
_EINSUM = op("Einsum", _GIVEN, _KERNEL) | op("Einsum", _KERNEL, _GIVEN)
_PRODUCT = view_of(_MULTIPLIED | _TWICE | _SUMMED | _EINSUM)
_BIASED = op("|".join(_ADDS), _PRODUCT, _BIAS) | op("|".join(_ADDS), _BIAS, _PRODUCT)
_LINEAR = Pattern(_PRODUCT | _BIASED)


@dataclass
class _Linear:
    """A product of x with constant weights, with its bias."""

    version: str
    kernels: list[Output | Array]
    transposed: bool = False
    bias: Output | Array | None = None
    nodes: set[str] = field(default_factory=set)


def cross_layer(flat: Flat, node: Node) -> Outcome[CrossLayer]:
    """Recognize a layer by its last node, the sum."""
    root = node.output()
    width = _width(flat, root) if node.op in _ADDS else None
    tensors, vectors, nodes = _addends(flat, root) if width else ([], [], set())
    if not width or len(tensors) != 2:
        return NoMatch()
    for product, x in (tensors, tensors[::-1]):
        for start, factor in _factors(flat, product, root):
            linear = _linear(flat, factor, x, width)
            if linear is None:
                continue
            refusal = _disagreement(flat, root, linear, vectors)
            if refusal is not None:
                return Refused(refusal)
            bias = linear.bias if not vectors else vectors[0]
            nodes |= linear.nodes | {product.node}
            layer = CrossLayer(root, start, flat.source(start), flat.source(x), width, linear.version, linear.kernels)
            return Found(replace(layer, bias=bias, transposed=linear.transposed, nodes=nodes))
    return NoMatch()


def _width(flat: Flat, output: Output) -> int | None:
    """Return the number of elements of a row, if all but one size after the first are 1."""
    sizes = flat.known(output)[1:]
    rest = [size for size in sizes if size != 1]
    if not sizes or len(rest) > 1:
        return None
    return rest[0] if rest else 1


def _disagreement(flat: Flat, root: Output, linear: _Linear, vectors: list[Output | Array]) -> str | None:
    if not flat.is_float(root):
        return f"'{root.node}' is not float32"
    if len(vectors) > 1:
        return f"{len(vectors)} biases are added, expected one"
    if linear.version != "vector" and vectors:
        return "a bias is added after the product with x0, expected it before"
    if linear.version == "vector" and linear.bias is not None:
        return "a bias is added before the product with x0, expected it after"
    return None


def _addends(flat: Flat, root: Output) -> tuple[list[Output], list[Output | Array], set[str]]:
    """Return the tensors and constant vectors that a sum adds; an inner sum with other users counts as a tensor."""
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
    """Return the pairs (x0, factor) of a product: element by element, or of rows with one number for each row."""
    node = flat.direct(product, "Mul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
    if node is None or flat.sizes(product) != flat.sizes(root):
        return []
    left, right = (skip(flat.graph, source) for source in node.inputs)
    if node.op != "Mul":
        # [rows, width, 1] · [rows, 1, 1]
        ones = len(flat.known(right)) == 3 and flat.known(right)[1:] == [1, 1] and flat.known(left)[2:] == [1]
        return [(left, right)] if ones and not flat.adjoined(node) else []
    whole = flat.sizes(product)
    found = []
    for start, factor in ((left, right), (right, left)):
        if flat.sizes(start) == whole and len(flat.known(factor)) == len(whole or ()):
            found.append((start, factor))
    return found


def _linear(flat: Flat, output: Output, x: Output, width: int) -> _Linear | None:
    """Recognize a product of x with constant weights and its bias."""
    outcome = _LINEAR.match(flat, output, {_X: flat.source(x)})
    if not isinstance(outcome, Found):
        return None
    match = outcome.value
    found = next((read(flat, match, width) for part, read in _KINDS.items() if part in match), None)
    if found is None:
        return None
    found.nodes = {view.node for part in (_PRODUCT, _THIN_VIEW) if part in match for view in flat.views(match[part])}
    if _SUMMED in match:
        found.nodes.add(match[_TIMES].node)
    if _BIASED in match:
        found.bias = flat.row_vector(match[_BIAS], match[_BIASED])
        found.nodes.add(match[_BIASED].node)
    return None if _BIASED in match and found.bias is None else found


def _multiplied(flat: Flat, match: Match, width: int) -> _Linear | None:
    """Recognize `MatMul(x, kernel)`."""
    kernel, turned = match[_KERNEL], flat.adjoined(match.node(_MULTIPLIED))
    shape = _shape(flat, kernel, turned)
    if shape == [width, 1] and _one_per_row(flat, match[_PRODUCT]):
        return _Linear("vector", [kernel])
    fits = shape == [width, width] and _width(flat, match[_PRODUCT]) == width
    return _Linear("matrix", [kernel], turned) if fits else None


def _multiplied_twice(flat: Flat, match: Match, width: int) -> _Linear | None:
    """Recognize `MatMul(MatMul(x, thin), kernel)`."""
    kernels, turned = [match[_THIN_KERNEL], match[_KERNEL]], flat.adjoined(match.node(_TWICE))
    first, second = (_shape(flat, kernel, turned) for kernel in kernels)
    fits = len(second) == 2 and second[1] == width and first == [width, second[0]]
    if not fits or flat.adjoined(match.node(_THIN)) != turned or _width(flat, match[_PRODUCT]) != width:
        return None
    return _Linear("low_rank", list(kernels), turned)


def _shape(flat: Flat, kernel: Output, turned: bool) -> list[int]:
    _, shape = flat.kernel(kernel) or (kernel, [])
    return shape[::-1] if turned else shape


def _one_per_row(flat: Flat, output: Output) -> bool:
    """Return whether a product has one number for each row of a batch, in this shape."""
    sizes = flat.known(output)
    return len(sizes) > 1 and all(size == 1 for size in sizes[1:])


def _summed(flat: Flat, match: Match, width: int) -> _Linear | None:
    """Recognize `Sum(x * w, -1)`."""
    times, sizes = match[_TIMES], flat.known(match[_TIMES])
    axes, kernel = flat.reduced(match.node(_SUMMED)), flat.row_vector(match[_ROW], times)
    if kernel is None or axes is None or 0 in axes or _width(flat, times) != width:
        return None
    summed = all(axis in axes or sizes[axis] == 1 for axis in range(1, len(sizes)))
    return _Linear("vector", [kernel]) if summed and _one_per_row(flat, match[_PRODUCT]) else None


def _contracted(flat: Flat, match: Match, width: int) -> _Linear | None:
    """Recognize `ij,bjk->bik` with k of size 1, and similar equations: a letter of the weights replaces one of x."""
    node, kernel = match.node(_EINSUM), match[_KERNEL]
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    left, _, result = equation.partition("->")
    letters = left.split(",")
    side = [skip(flat.graph, given) for given in node.inputs].index(kernel)
    if len(letters) != 2 or "." in equation or _shape(flat, kernel, False) != [width, width]:
        return None
    weights, rows = letters[side], letters[1 - side]
    shared = [letter for letter in weights if letter in rows]
    if len(shared) != 1 or len(weights) != 2 or len(set(weights)) != 2 or len(set(rows)) != len(rows):
        return None
    changed = rows.replace(shared[0], weights.replace(shared[0], ""))
    if result != changed or rows.index(shared[0]) == 0:
        return None
    return _Linear("matrix", [kernel], weights[1] == shared[0])


_KINDS = {_MULTIPLIED: _multiplied, _TWICE: _multiplied_twice, _SUMMED: _summed, _EINSUM: _contracted}
