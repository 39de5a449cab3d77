# SPDX-License-Identifier: Apache-2.0
"""Compute weighted products of pairs of feature vectors in one node."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, skip
from graph_tools.recognition.field_pairs import FieldPairs, field_pairs, sum_of_products
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, joined


class FuseProducts(InteractionPass):
    """Replace PNN's outer products, of pairs of vectors with a number, a vector or a matrix for each pair.

    Before: `Sum(p * q * kernel, -1)`; `Sum(Transpose(Sum(ExpandDims(p, 1) * kernel, -1)) * q, -1)`, p and q joining the
    vectors of pairs.
    After: `RecProduct(x, kernel)`.

    The order of additions may be another.
    """

    name = "fuse_products"

    def roots(self, flat: Flat) -> Iterable[Node]:
        return flat.graph.of("Sum")

    def match(self, flat: Flat, node: Node) -> Fusion | str | None:
        operands = sum_of_products(flat, node.output())
        if operands is None:
            return None
        for one, other in (operands, operands[::-1]):
            found = _weighted(flat, one, other) or _bilinear(flat, one, other)
            if isinstance(found, str):
                return found
            if found is not None:
                pairs, kind, kernel = found
                given = joined(flat, pairs.fields)
                attrs = {"kind": kind, "pairs": pairs.numbers(), "num_fields": len(pairs.fields), "dim": pairs.dim}
                return Fusion(node.output(), "RecProduct", [given, kernel], attrs, (None, len(pairs.pairs)))
        return None


_Found = tuple[FieldPairs, str, Output] | str | None


def _weighted(flat: Flat, product: Output, weights: Output) -> _Found:
    """`p * q` and weights [pairs, dim] or [pairs, 1], under any shape that does so for each row."""
    times = flat.direct(product, "Mul")
    kernel = _kernel(flat, weights)
    if times is None or kernel is None:
        return None
    pairs = field_pairs(flat, times.inputs[0], times.inputs[1])
    if pairs is None or isinstance(pairs, str):
        return pairs
    output, shape = kernel
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    count = len(pairs.pairs)
    if shape == [count, pairs.dim]:
        return pairs, "vector", output
    if shape == [count, 1]:
        return pairs, "scalar", output
    return f"weights '{output.node}' have the shape {shape}, expected one for each pair"


def _bilinear(flat: Flat, inner: Output, second: Output) -> _Found:
    """`Transpose(Sum(ExpandDims(p, 1) * kernel, -1), [0, 2, 1])` with a kernel [dim, pairs, dim]."""
    turned = flat.direct(inner, "Transpose")
    if turned is None or flat.shapes.numbers(turned.inputs[1]) != [0, 2, 1]:
        return None
    summed = flat.direct(turned.inputs[0], "Sum")
    times = None if summed is None else flat.direct(summed.inputs[0], "Mul")
    if summed is None or times is None or flat.reduced(summed) != (3,) or len(flat.known(times.output())) != 4:
        return None
    for side, other in ((0, 1), (1, 0)):
        kernel = _kernel(flat, times.inputs[other])
        expanded = flat.direct(times.inputs[side], "ExpandDims", "Reshape")
        if kernel is None or expanded is None or flat.known(times.inputs[side])[1] != 1:
            continue
        pairs = field_pairs(flat, skip(flat.graph, expanded.inputs[0]), second)
        if pairs is None or isinstance(pairs, str):
            return pairs
        expected = [pairs.dim, len(pairs.pairs), pairs.dim]
        if kernel[1] != expected:
            return f"weights '{kernel[0].node}' have the shape {kernel[1]}, expected {expected}"
        return pairs, "matrix", kernel[0]
    return None


def _kernel(flat: Flat, output: Output) -> tuple[Output, list[int]] | None:
    """Return constant weights, and the shape in which they are used."""
    found = flat.kernel(output)
    if found is not None:
        return found
    inner, shape = flat.source(output), flat.known(output)
    return (inner, [one or 0 for one in shape]) if flat.kernel(inner) is not None and None not in shape else None
