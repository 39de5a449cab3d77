# SPDX-License-Identifier: Apache-2.0
"""Compute dot products of pairs of feature vectors in one node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.recognition.field_pairs import field_pairs, own_products, sum_of_products
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, fields_input, joined
from graph_tools.tensors import Array


class FuseDotInteractions(InteractionPass):
    """Replace products of all vectors of a row with each other of which some are used, and products of two lists.

    Before: `BatchMatMul(x, xᵀ)`, of which a mask or indices pick a triangle (DLRM); `Sum(p * q, -1)`, p and q joining
    the vectors of pairs (PNN).
    After: `RecDotInteraction(x)`.

    Where the triangle is picked by the values of a mask, these must follow from constants.
    """

    name = "fuse_dot_interactions"

    def roots(self, flat: Flat) -> Iterable[Node]:
        return flat.graph.of("GatherV2", "GatherNd", "Select", "SelectV2", "Mul", "Sum", "AddN")

    def match(self, flat: Flat, node: Node) -> Fusion | str | None:
        if node.op == "Sum":
            return _inner_products(flat, node)
        if node.op == "GatherNd":
            return _gathered_by_place(flat, node)
        if node.op == "AddN":
            return _why_pairs_stay(flat, node)
        source = _all_products(flat, node)
        if source is None:
            return None
        fields = own_products(flat, source)
        if fields is None:
            return None
        count = flat.known(fields)[1]
        if not count or not flat.is_float(fields):
            return f"'{fields.node}' is not float32 with a known number of vectors"
        picked = _picked(flat, node, source, count)
        if isinstance(picked, str):
            return picked
        given, dim = fields_input(flat, fields)
        attrs = {"pairs": picked, "num_fields": count, "dim": dim}
        return Fusion(node.output(), "RecDotInteraction", [given], attrs, (None, len(picked)))


def _inner_products(flat: Flat, node: Node) -> Fusion | str | None:
    operands = sum_of_products(flat, node.output())
    found = None if operands is None else field_pairs(flat, *operands)
    if found is None or isinstance(found, str):
        return found
    given = joined(flat, found.fields)
    attrs = {"pairs": found.numbers(), "num_fields": len(found.fields), "dim": found.dim}
    return Fusion(node.output(), "RecDotInteraction", [given], attrs, (None, len(found.pairs)))


def _why_pairs_stay(flat: Flat, node: Node) -> str | None:
    """Say why a sum of weighted products of pairs (FwFM, as DeepCTR writes it) stays as it is."""
    source, *others = (_source_of_pair(flat, one) for one in node.inputs)
    if source is None or not others or any(one != source for one in others):
        return None
    pairs = f"{len(node.inputs)} pairs of vectors of '{source.node}'"
    return f"{pairs} are multiplied and weighted one by one, expected one product of all vectors with each other"


def _source_of_pair(flat: Flat, output: Output) -> Output | None:
    """Return the tensor of which a term multiplies two vectors, and the product by a weight."""
    weighted = flat.node(output, "Mul")
    given = [output] if weighted is None else weighted.inputs
    product = next(filter(None, (_product_of_vectors(flat, one) for one in given)), None)
    slices = [] if product is None else [flat.node(one, "StridedSlice") for one in product.inputs]
    sources = {skip(flat.graph, one.inputs[0]) for one in slices if one is not None}
    if len(sources) != 1 or None in slices:
        return None
    (source,) = sources
    return source if len(flat.known(source)) == 3 else None


def _product_of_vectors(flat: Flat, output: Output) -> Node | None:
    """Return the node that multiplies two vectors: a product of matrices, or elements that a sum adds up."""
    summed = flat.node(output, "Sum")
    if summed is not None:
        return flat.node(summed.inputs[0], "Mul")
    return flat.node(output, "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")


def _all_products(flat: Flat, node: Node) -> Output | None:
    """Return the operand of a node that may be all products."""
    if node.op == "GatherV2":
        return node.inputs[0] if not attribute(node, "batch_dims", 0) else None
    candidates = node.inputs if node.op == "Mul" else node.inputs[1:]
    return next((one for one in candidates if own_products(flat, one) is not None), None)


def _picked(flat: Flat, node: Node, source: Output, count: int) -> list[int] | str:
    """List the pairs whose products a node gives for each row, -1 for a zero."""
    if node.op == "GatherV2":
        return _gathered(flat, node, count)
    others = [one for one in node.inputs if one != source]
    mask = None if not others else matrix_of(flat, others[0], count)
    if mask is None:
        return f"mask '{others[0].node if others else node.name}' does not follow from constants"
    if node.op == "Mul":
        if not np.isin(mask, (0, 1)).all():
            return f"'{others[0].node}' has other numbers than 0 and 1"
        keeps = mask != 0
    else:
        zero = others[-1] if len(others) == 2 else node.inputs[0]
        if flat.scalar(zero) != 0.0 or node.op == "Select":
            return f"'{zero.node}' is not zero, expected so of what is not picked"
        keeps = (mask != 0) == (source == node.inputs[1])
    return [int(i) if keep else -1 for i, keep in enumerate(keeps.ravel())]


def _gathered(flat: Flat, node: Node, count: int) -> list[int] | str:
    axis, sizes = flat.shapes.numbers(node.inputs[2]), flat.known(node.inputs[0])
    indices = flat.values.constant(node.inputs[1])
    if axis == [1] and sizes[1:] == [count * count]:
        if indices is None:
            indices = _where(flat, node.inputs[1], count)
        if indices is None or indices.ndim != 1 or not ((indices >= 0) & (indices < count * count)).all():
            return f"indices '{node.inputs[1].node}' do not follow from constants"
        return [int(one) for one in indices]
    if axis == [0] and len(sizes) == 1:
        # The mask is repeated for each row, since it is made from the products themselves.
        indices = _where(flat, node.inputs[1], count) if indices is None else None
        if indices is not None:
            return [int(one) for one in indices]
    return f"'{node.name}' picks rows, expected products of each row"


def _gathered_by_place(flat: Flat, node: Node) -> Fusion | str | None:
    """Recognise `transpose(gather_nd(transpose(products, [1, 2, 0]), places))`."""
    turned = flat.direct(node.inputs[0], "Transpose")
    source = node.inputs[0] if turned is None else turned.inputs[0]
    fields = own_products(flat, source)
    if fields is None:
        return None
    count, places = flat.known(fields)[1], flat.values.constant(node.inputs[1])
    if turned is None or flat.shapes.numbers(turned.inputs[1]) != [1, 2, 0]:
        return f"'{node.name}' picks products of each row in another way than by constant places of a transposed matrix"
    if places is None or places.ndim != 2 or places.shape[1] != 2 or not count:
        return f"places '{node.inputs[1].node}' do not follow from constants"
    user = flat.only_user(node.output())
    if user is None or user.op != "Transpose" or flat.shapes.numbers(user.inputs[1]) != [1, 0]:
        return f"products that '{node.name}' picks are not put in rows again"
    if not flat.is_float(fields) or not ((places >= 0) & (places < count)).all():
        return f"'{fields.node}' is not float32, or places are beyond its vectors"
    given, dim = fields_input(flat, fields)
    pairs = [int(i) * count + int(j) for i, j in places]
    attrs = {"pairs": pairs, "num_fields": count, "dim": dim}
    return Fusion(user.output(), "RecDotInteraction", [given], attrs, (None, len(pairs)))


def _where(flat: Flat, output: Output, count: int) -> Array | None:
    """Return the places, within one row, where a mask that is the same for all rows is true."""
    node = flat.node(output, "Where")
    mask = None if node is None else matrix_of(flat, node.inputs[0], count)
    return None if mask is None else np.flatnonzero(mask)


def matrix_of(flat: Flat, output: Output, count: int) -> Array | None:
    """Compute a matrix [count, count] that is the same for all rows, or None where it is not known."""
    output = flat.source(output)
    value = flat.values.constant(output)
    if value is not None:
        if value.size == 1:
            return np.full((count, count), float(value.reshape(-1)[0]))
        return value.reshape(count, count).astype(np.float64) if value.size == count * count else None
    node = flat.graph[output.node]
    if node.controls:
        return None
    if node.op in {"OnesLike", "ZerosLike"}:
        whole = flat.known(node.inputs[0])
        fits = len(whole) == 3 and whole[1:] == [count, count]
        return np.full((count, count), float(node.op == "OnesLike")) if fits else None
    if node.op == "Cast":
        inner = matrix_of(flat, node.inputs[0], count)
        dtype = attribute(node, "DstT").as_numpy_dtype
        return None if inner is None else inner.astype(dtype).astype(np.float64)
    if node.op == "MatrixBandPart":
        inner = matrix_of(flat, node.inputs[0], count)
        bounds = [flat.shapes.numbers(one) for one in node.inputs[1:]]
        if inner is None or not all(one is not None and len(one) == 1 for one in bounds):
            return None
        lower, upper = (one[0] for one in bounds if one)
        i, j = np.indices(inner.shape)
        return np.where(((lower < 0) | (i - j <= lower)) & ((upper < 0) | (j - i <= upper)), inner, 0)
    if node.op == "LogicalNot":
        inner = matrix_of(flat, node.inputs[0], count)
        return None if inner is None else 1.0 - inner
    if node.op == "Sub":
        one, other = (matrix_of(flat, each, count) for each in node.inputs)
        return None if one is None or other is None else one - other
    return None
