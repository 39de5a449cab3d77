# SPDX-License-Identifier: Apache-2.0
"""Compute weighted products of pairs of feature vectors in one node."""

from __future__ import annotations

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output
from graph_tools.recognition.field_pairs import field_pairs, sum_of_products
from graph_tools.recognition.flat_patterns import rank, sum_over, transposed
from graph_tools.rewriting.interaction_pass import Fusion, PatternPass, joined
from graph_tools.rewriting.matcher import Match, Pattern
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.pattern import op, value


def _kernel(flat: Flat, output: Output) -> tuple[Output, list[int]] | None:
    """Return constant weights and the shape in which they are used."""
    found = flat.kernel(output)
    if found is not None:
        return found
    inner, shape = flat.source(output), flat.known(output)
    return (inner, [size or 0 for size in shape]) if flat.kernel(inner) is not None and None not in shape else None


_FIRST, _SECOND, _KERNEL = value(), value(), value().where(_kernel)
_WEIGHTED = sum_of_products(op("Mul", _FIRST, _SECOND), _KERNEL)
_EXPANDED = op("ExpandDims|Reshape", _FIRST, ...).where(lambda flat, output: flat.known(output)[1] == 1)
_TIMES_MATRIX = sum_over(op("Mul", _EXPANDED, _KERNEL).where(rank(4)), 3)
_BILINEAR = sum_of_products(transposed(_TIMES_MATRIX, [0, 2, 1]), _SECOND)
_PATTERN = Pattern(_WEIGHTED | _BILINEAR)


class FuseProducts(PatternPass):
    """Replace PNN's outer products: pairs of vectors, with a number, a vector or a matrix for each pair.

    Before: `Sum(p * q * kernel, -1)`; `Sum(Transpose(Sum(ExpandDims(p, 1) * kernel, -1)) * q, -1)`, where p and q
    join the vectors of pairs.
    After: `RecProduct(x, kernel)`.

    The order of additions may change.
    """

    name = "fuse_products"

    pattern = _PATTERN

    def fusion(self, flat: Flat, node: Node, match: Match) -> Outcome[Fusion]:
        outcome, kernel = field_pairs(flat, match[_FIRST], match[_SECOND]), _kernel(flat, match[_KERNEL])
        if not isinstance(outcome, Found):
            return outcome
        assert kernel is not None
        pairs, (weights, shape) = outcome.value, kernel
        count = len(pairs.pairs)
        kinds: dict[tuple[int, ...], str]
        if _BILINEAR in match:
            kinds = {(pairs.dim, count, pairs.dim): "matrix"}
            wanted = f"{[pairs.dim, count, pairs.dim]}"
        else:
            while len(shape) > 2 and shape[0] == 1:
                shape = shape[1:]
            kinds = {(count, pairs.dim): "vector", (count, 1): "scalar"}
            wanted = "one for each pair"
        kind = kinds.get(tuple(shape))
        if kind is None:
            return Refused(f"weights '{weights.node}' have the shape {shape}, expected {wanted}")
        attrs = {"kind": kind, "pairs": pairs.numbers(), "num_fields": len(pairs.fields), "dim": pairs.dim}
        given = joined(flat, pairs.fields)
        return Found(Fusion(node.output(), "RecProduct", [given, weights], attrs, (None, count)))
