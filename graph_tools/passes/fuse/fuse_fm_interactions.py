# SPDX-License-Identifier: Apache-2.0
"""Compute the pairwise term of factorization machines in one node."""

from __future__ import annotations

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output
from graph_tools.recognition.flat_patterns import alone, number, squared, sum_over
from graph_tools.rewriting.interaction_pass import Fusion, PatternPass, fields_input, reshapable
from graph_tools.rewriting.matcher import Match, Pattern
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.pattern import Value, any_attribute, op, value


def _half(x: Value) -> Value:
    return op("Mul", alone(x), number(0.5)) | op("RealDiv|Div", alone(x), number(2.0))


def _sum_of_elements(x: Value) -> Value:
    return op("Sum", alone(x), ...).where(_sums_last_dimension)


def _sums_last_dimension(flat: Flat, output: Output) -> bool:
    """Return whether a sum is over the last dimension, and otherwise only over dimensions of size 1."""
    node = flat.graph[output.node]
    sizes, axes = flat.known(node.inputs[0]), flat.reduced(node) or (0,)
    return axes[-1] == len(sizes) - 1 and axes[0] != 0 and all(sizes[axis] == 1 for axis in axes[:-1])


_FIELDS, _KEEPS = value(), any_attribute()
_SUM, _SQUARES = (sum_over(x, 1, keep_dims=_KEEPS) for x in (_FIELDS, squared(_FIELDS)))
_DIFFERENCE = op("Sub", squared(_SUM), _SQUARES)
_PATTERN = Pattern(_DIFFERENCE)
_HALF = _half(_DIFFERENCE)
_SUMS = _sum_of_elements(_HALF) | _half(_sum_of_elements(_DIFFERENCE))


class FuseFmInteractions(PatternPass):
    """Replace half the difference between the square of a sum and the sum of squares, over the fields of a row.

    Before: `0.5 * Sum(Square(Sum(x, 1)) - Sum(x * x, 1), -1)` with x [rows, fields, dim], or without the outer sum.
    After: `RecFmInteraction(x)`.

    The order of additions may change.
    """

    name = "fuse_fm_interactions"

    pattern = _PATTERN

    def fusion(self, flat: Flat, node: Node, match: Match) -> Outcome[Fusion]:
        fields = match[_FIELDS]
        sizes = flat.known(fields)
        if len(sizes) != 3:
            return Refused(f"'{fields.node}' has {len(sizes)} dimensions, expected rows, fields and elements")
        if not flat.is_float(fields):
            return Refused(f"'{fields.node}' is not float32")
        summed = match.above(_SUMS)
        whole = summed or match.above(_HALF)
        if not whole:
            return Refused("the difference of the square of sums and the sum of squares is not halved")
        root = whole[_SUMS if summed else _HALF]
        if not reshapable(flat, root):
            return Refused(f"shape of '{root.node}' is not known")
        given, dim = fields_input(flat, fields)
        width = 1 if summed else sizes[2]
        attrs = {"output": "sum" if summed else "vector", "dim": dim}
        return Found(Fusion(root, "RecFmInteraction", [given], attrs, (None, width), (None, 1, width)))
