# SPDX-License-Identifier: Apache-2.0
"""Compute the pairwise term of factorisation machines in one node."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, fields_input, reshapable


class FuseFmInteractions(InteractionPass):
    """Replace half of the square of a sum less the sum of squares, over the fields of a row.

    Before: `0.5 * Sum(Square(Sum(x, 1)) - Sum(x * x, 1), -1)` with x [rows, fields, dim], or without the outer sum.
    After: `RecFmInteraction(x)`.

    The order of additions may be another.
    """

    name = "fuse_fm_interactions"

    def roots(self, flat: Flat) -> Iterable[Node]:
        return flat.graph.of("Sub")

    def match(self, flat: Flat, node: Node) -> Fusion | str | None:
        fields = _fields(flat, node)
        if fields is None:
            return None
        sizes = flat.known(fields)
        if len(sizes) != 3:
            return f"'{fields.node}' has {len(sizes)} dimensions, expected rows, fields and elements"
        if not flat.is_float(fields):
            return f"'{fields.node}' is not float32"
        root, halved, summed = _outer(flat, node.output())
        if not halved:
            return "the difference of the square of sums and the sum of squares is not halved"
        if not reshapable(flat, root):
            return f"shape of '{root.node}' is not known"
        given, dim = fields_input(flat, fields)
        width = 1 if summed else sizes[2]
        attrs = {"output": "sum" if summed else "vector", "dim": dim}
        return Fusion(root, "RecFmInteraction", [given], attrs, (None, width), (None, 1, width))


def _fields(flat: Flat, node: Node) -> Output | None:
    """Return x of `Square(Sum(x, 1)) - Sum(Square(x), 1)`."""
    inside = squared(flat, node.inputs[0])
    one = None if inside is None else flat.direct(inside, "Sum")
    other = flat.direct(node.inputs[1], "Sum")
    if one is None or other is None or attribute(one, "keep_dims", False) != attribute(other, "keep_dims", False):
        return None
    fields = skip(flat.graph, one.inputs[0])
    if squared(flat, other.inputs[0]) != fields:
        return None
    return fields if flat.reduced(one) == flat.reduced(other) == (1,) else None


def squared(flat: Flat, output: Output) -> Output | None:
    """Return x of `Square(x)`, `x * x` or `Pow(x, 2)`."""
    node = flat.direct(output, "Square", "Mul", "Pow")
    if node is None:
        return None
    x = skip(flat.graph, node.inputs[0])
    if node.op == "Mul" and skip(flat.graph, node.inputs[1]) != x:
        return None
    return x if node.op != "Pow" or flat.scalar(node.inputs[1]) == 2.0 else None


def _outer(flat: Flat, root: Output) -> tuple[Output, bool, bool]:
    """Follow what halves the difference and sums it up; say which of both is there."""
    halved, summed = False, False
    while True:
        user = flat.only_user(root)
        if user is not None and not halved and _halves(flat, user, root):
            halved = True
        elif user is not None and not summed and _sums_elements(flat, user):
            summed = True
        else:
            return root, halved, summed
        root = user.output()


def _halves(flat: Flat, node: Node, x: Output) -> bool:
    if node.op in {"RealDiv", "Div"}:
        return skip(flat.graph, node.inputs[0]) == x and flat.scalar(node.inputs[1]) == 2.0
    others = [one for one in node.inputs if skip(flat.graph, one) != x]
    return node.op == "Mul" and len(others) == 1 and flat.scalar(others[0]) == 0.5


def _sums_elements(flat: Flat, node: Node) -> bool:
    """Say whether a node sums up the last dimension, with others of size 1 at most."""
    sizes = flat.known(node.inputs[0])
    axes = flat.reduced(node) if node.op == "Sum" else None
    if not axes or axes[-1] != len(sizes) - 1 or axes[0] == 0:
        return False
    return all(sizes[one] == 1 for one in axes[:-1])
