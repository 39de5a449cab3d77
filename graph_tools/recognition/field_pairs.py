# SPDX-License-Identifier: Apache-2.0
"""Pairs of feature vectors, as models list them: the first vectors joined, and the second ones."""

from __future__ import annotations

from dataclasses import dataclass

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Output, attribute, skip


@dataclass
class FieldPairs:
    """Two joined lists of vectors, both [rows, pairs, dim], and which vectors they are of.

    Attributes
    ----------
    fields : list of Output
        Each vector once, in the order in which they are met; [rows, 1, dim] each.
    pairs : list of (int, int)
    dim : int
    """

    fields: list[Output]
    pairs: list[tuple[int, int]]
    dim: int

    def numbers(self) -> list[int]:
        """Return the numbers that ops have for the pairs."""
        return [i * len(self.fields) + j for i, j in self.pairs]


def field_pairs(flat: Flat, first: Output, second: Output) -> FieldPairs | str | None:
    """Take two joined lists apart."""
    one, other = _joined(flat, first), _joined(flat, second)
    if one is None or other is None or len(one) != len(other):
        return None
    fields = list(dict.fromkeys([*one, *other]))
    shapes = {tuple(flat.known(each)) for each in fields}
    if len(fields) < 2:
        return None
    if len(shapes) > 1:
        return f"shapes of '{fields[0].node}' and others differ, expected vectors of one size"
    dim = shapes.pop()[-1]
    if not dim or not all(flat.is_float(each) for each in fields):
        return f"shape or dtype of '{fields[0].node}' is not known"
    pairs = [(fields.index(a), fields.index(b)) for a, b in zip(one, other, strict=True)]
    return FieldPairs(fields, pairs, dim)


def _joined(flat: Flat, output: Output) -> list[Output] | None:
    """List the parts of a join along the second of three dimensions, each of size 1 there."""
    sizes = flat.known(output)
    if len(sizes) != 3:
        return None
    node = flat.direct(output, "ConcatV2")
    parts = [skip(flat.graph, output)]
    if node is not None:
        if flat.shapes.numbers(node.inputs[-1]) not in ([1], [-2]):
            return None
        parts = [skip(flat.graph, one) for one in node.inputs[:-1]]
    return parts if all(len(flat.known(one)) == 3 and flat.known(one)[1] == 1 for one in parts) else None


def sum_of_products(flat: Flat, root: Output) -> tuple[Output, Output] | None:
    """Return the operands of `Sum(a * b, -1)` over [rows, pairs, dim]."""
    node = flat.direct(root, "Sum")
    times = None if node is None else flat.direct(node.inputs[0], "Mul")
    if node is None or times is None or flat.reduced(node) != (2,) or len(flat.known(times.output())) != 3:
        return None
    return skip(flat.graph, times.inputs[0]), skip(flat.graph, times.inputs[1])


def own_products(flat: Flat, output: Output) -> Output | None:
    """Return x [rows, fields, dim] of the products of all its vectors with each other, [rows, fields, fields]."""
    node = flat.node(output, "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
    if node is None or attribute(node, "adj_x", False):
        return None
    x, other = (skip(flat.graph, one) for one in node.inputs)
    if not attribute(node, "adj_y", False):
        turned = flat.direct(other, "Transpose")
        if turned is None or flat.shapes.numbers(turned.inputs[1]) != [0, 2, 1]:
            return None
        other = skip(flat.graph, turned.inputs[0])
    return x if x == other and len(flat.known(x)) == 3 else None
