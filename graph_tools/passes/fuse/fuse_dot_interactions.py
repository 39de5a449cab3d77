# SPDX-License-Identifier: Apache-2.0
"""Compute dot products of pairs of feature vectors in one node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute
from graph_tools.recognition.field_pairs import field_pairs, own_products, sum_of_products
from graph_tools.recognition.flat_patterns import PRODUCT, alone, rank, transposed, view_of
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, fields_input, joined
from graph_tools.rewriting.matcher import Match, Pattern
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import expected, op, optional, value
from graph_tools.tensors import Array

# Some products, picked from all.
_FIELDS, _CHOICE, _OTHER = value(), value(), value()
_ALL = own_products(_FIELDS)
_GATHERED = op("GatherV2", _ALL, _CHOICE, ..., batch_dims=False)
_MASKED = op("Mul", _ALL, _CHOICE)
_SELECTED, _SELECTED_ELSE = op("Select|SelectV2", _CHOICE, _ALL, _OTHER), op("Select|SelectV2", _CHOICE, _OTHER, _ALL)
_PICKED = Pattern(_GATHERED | _MASKED | _SELECTED | _SELECTED_ELSE)

# transpose(gather_nd(transpose(products, [1, 2, 0]), places))
_ALL_IN_ANY_ORDER = optional(lambda products: op("Transpose", products, value()), _ALL)
_BY_PLACE = op("GatherNd", _ALL_IN_ANY_ORDER, _CHOICE) & expected(
    op("GatherNd", transposed(_ALL, [1, 2, 0]), _CHOICE),
    "'{0.node}' does not pick the products of each row by constant places of a transposed matrix",
)
_PLACED, _IN_ROWS = Pattern(_BY_PLACE), transposed(alone(_BY_PLACE), [1, 0])

# Products of two joined lists.
_FIRST, _SECOND = value(), value()
_INNER = Pattern(sum_of_products(_FIRST, _SECOND))

# One term of the sum in FwFM, as DeepCTR writes it.
_TENSOR = value().where(rank(3))
_VECTORS = view_of(op("StridedSlice", _TENSOR, ...)), view_of(op("StridedSlice", _TENSOR, ...))
_PRODUCT = view_of(op(PRODUCT, *_VECTORS) | op("Sum", view_of(op("Mul", *_VECTORS)), ...))
_TERM = Pattern(optional(lambda product: view_of(op("Mul", product, value())), _PRODUCT))


class FuseDotInteractions(InteractionPass):
    """Replace dot products of the vectors of a row, picked from all pairs or computed for two lists of vectors.

    Before: `BatchMatMul(x, xᵀ)`, of which a mask or indices pick a triangle (DLRM); `Sum(p * q, -1)`, where p and q
    join the vectors of pairs (PNN).
    After: `RecDotInteraction(x)`.

    If the values of a mask pick the triangle, these values must follow from constants.
    """

    name = "fuse_dot_interactions"

    def roots(self, flat: Flat) -> Iterable[Node]:
        return flat.graph.of("AddN", *_INNER.root.ops, *_PICKED.root.ops, *_PLACED.root.ops)

    def match(self, flat: Flat, node: Node) -> Outcome[Fusion]:
        if node.op == "AddN":
            return _why_pairs_stay(flat, node)
        look = {"Sum": _inner_products, "GatherNd": _gathered_by_place}.get(node.op, _picked_products)
        return look(flat, node.output())


def _inner_products(flat: Flat, root: Output) -> Outcome[Fusion]:
    found = _INNER.match(flat, root)
    outcome = field_pairs(flat, found.value[_FIRST], found.value[_SECOND]) if isinstance(found, Found) else NoMatch()
    if not isinstance(outcome, Found):
        return outcome
    pairs = outcome.value
    given = joined(flat, pairs.fields)
    attrs = {"pairs": pairs.numbers(), "num_fields": len(pairs.fields), "dim": pairs.dim}
    return Found(Fusion(root, "RecDotInteraction", [given], attrs, (None, len(pairs.pairs))))


def _why_pairs_stay(flat: Flat, node: Node) -> Outcome[Fusion]:
    """Return why a sum of weighted products of pairs (FwFM, as DeepCTR writes it) is not replaced."""
    terms = [_TERM.match(flat, term) for term in node.inputs]
    tensors = {term.value[_TENSOR] if isinstance(term, Found) else None for term in terms}
    tensor = tensors.pop()
    if tensor is None or tensors or len(terms) < 2:
        return NoMatch()
    pairs = f"{len(terms)} pairs of vectors of '{tensor.node}'"
    return Refused(
        f"{pairs} are multiplied and weighted one by one, expected one product of all vectors with each other"
    )


def _gathered_by_place(flat: Flat, root: Output) -> Outcome[Fusion]:
    found = _PLACED.match(flat, root)
    if not isinstance(found, Found):
        return found
    fields, choice = found.value[_FIELDS], found.value[_CHOICE]
    count, places = flat.known(fields)[1], flat.values.constant(choice)
    if places is None or places.ndim != 2 or places.shape[1] != 2 or not count:
        return Refused(f"places '{choice.node}' do not follow from constants")
    whole = found.value.above(_IN_ROWS)
    if whole is None:
        return Refused(f"products that '{root.node}' picks are not transposed back to rows")
    if not flat.is_float(fields) or not ((places >= 0) & (places < count)).all():
        return Refused(f"'{fields.node}' is not float32, or places are beyond its vectors")
    given, dim = fields_input(flat, fields)
    pairs = [int(i) * count + int(j) for i, j in places]
    attrs = {"pairs": pairs, "num_fields": count, "dim": dim}
    return Found(Fusion(whole[_IN_ROWS], "RecDotInteraction", [given], attrs, (None, len(pairs))))


def _picked_products(flat: Flat, root: Output) -> Outcome[Fusion]:
    found = _PICKED.match(flat, root)
    if not isinstance(found, Found):
        return found
    fields = found.value[_FIELDS]
    count = flat.known(fields)[1]
    if not count or not flat.is_float(fields):
        return Refused(f"'{fields.node}' is not float32 with a known number of vectors")
    outcome = _picked(flat, found.value, root, count)
    if not isinstance(outcome, Found):
        return outcome
    picked = outcome.value
    given, dim = fields_input(flat, fields)
    attrs = {"pairs": picked, "num_fields": count, "dim": dim}
    return Found(Fusion(root, "RecDotInteraction", [given], attrs, (None, len(picked))))


def _picked(flat: Flat, match: Match, root: Output, count: int) -> Outcome[list[int]]:
    """Return the pairs whose products a node returns for each row, with -1 for a zero."""
    choice = match[_CHOICE]
    if _GATHERED in match:
        return _gathered(flat, flat.graph[root.node], count)
    mask = matrix_of(flat, choice, count)
    if mask is None:
        return Refused(f"mask '{choice.node}' does not follow from constants")
    if _MASKED in match:
        if not np.isin(mask, (0, 1)).all():
            return Refused(f"'{choice.node}' has other numbers than 0 and 1")
    elif flat.scalar(match[_OTHER]) != 0.0 or flat.graph[root.node].op == "Select":
        return Refused(f"'{match[_OTHER].node}' replaces the products that are not picked, expected zero")
    keeps = (mask != 0) != (_SELECTED_ELSE in match)
    return Found([int(i) if keep else -1 for i, keep in enumerate(keeps.ravel())])


def _gathered(flat: Flat, node: Node, count: int) -> Outcome[list[int]]:
    axis, sizes = flat.shapes.numbers(node.inputs[2]), flat.known(node.inputs[0])
    indices = flat.values.constant(node.inputs[1])
    if axis == [1] and sizes[1:] == [count * count]:
        if indices is None:
            indices = _where(flat, node.inputs[1], count)
        if indices is None or indices.ndim != 1 or not ((indices >= 0) & (indices < count * count)).all():
            return Refused(f"indices '{node.inputs[1].node}' do not follow from constants")
        return Found([int(index) for index in indices])
    if axis == [0] and len(sizes) == 1:
        # The mask is repeated for each row, since it is made from the products themselves.
        indices = _where(flat, node.inputs[1], count) if indices is None else None
        if indices is not None:
            return Found([int(index) for index in indices])
    return Refused(f"'{node.name}' picks rows, expected products of each row")


def _where(flat: Flat, output: Output, count: int) -> Array | None:
    """Return the places, within one row, at which a mask that is the same for all rows is true."""
    node = flat.node(output, "Where")
    mask = None if node is None else matrix_of(flat, node.inputs[0], count)
    return None if mask is None else np.flatnonzero(mask)


def matrix_of(flat: Flat, output: Output, count: int) -> Array | None:
    """Compute a matrix [count, count] that is the same for all rows, or None if it is not known."""
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
        bounds = [flat.shapes.numbers(source) for source in node.inputs[1:]]
        if inner is None or not all(bound is not None and len(bound) == 1 for bound in bounds):
            return None
        lower, upper = (bound[0] for bound in bounds if bound)
        i, j = np.indices(inner.shape)
        return np.where(((lower < 0) | (i - j <= lower)) & ((upper < 0) | (j - i <= upper)), inner, 0)
    if node.op == "LogicalNot":
        inner = matrix_of(flat, node.inputs[0], count)
        return None if inner is None else 1.0 - inner
    if node.op == "Sub":
        minuend, subtrahend = (matrix_of(flat, source, count) for source in node.inputs)
        return None if minuend is None or subtrahend is None else minuend - subtrahend
    return None
