# SPDX-License-Identifier: Apache-2.0
"""Pairs of feature vectors, as models list them: a join of the first vectors, and a join of the second ones."""

from __future__ import annotations

from dataclasses import dataclass

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Output, skip
from graph_tools.recognition.flat_patterns import PRODUCT, rank, sum_over, transposed, view_of
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import Value, op


@dataclass
class FieldPairs:
    """Two joined lists of vectors, both [rows, pairs, dim], and the vectors that they contain.

    Attributes
    ----------
    fields : list of Output
        Each vector once, in the order of first use; [rows, 1, dim] each.
    pairs : list of (int, int)
    dim : int
    """

    fields: list[Output]
    pairs: list[tuple[int, int]]
    dim: int

    def numbers(self) -> list[int]:
        """Return the number of each pair, as in the attribute `pairs` of the ops."""
        return [i * len(self.fields) + j for i, j in self.pairs]


def field_pairs(flat: Flat, first: Output, second: Output) -> Outcome[FieldPairs]:
    """Split two joined lists into pairs of vectors."""
    first_parts, second_parts = _joined(flat, first), _joined(flat, second)
    if first_parts is None or second_parts is None or len(first_parts) != len(second_parts):
        return NoMatch()
    fields = list(dict.fromkeys([*first_parts, *second_parts]))
    shapes = {tuple(flat.known(field)) for field in fields}
    if len(fields) < 2:
        return NoMatch()
    if len(shapes) > 1:
        return Refused(f"shapes of '{fields[0].node}' and others differ, expected vectors of one size")
    dim = shapes.pop()[-1]
    if not dim or not all(flat.is_float(field) for field in fields):
        return Refused(f"shape or dtype of '{fields[0].node}' is not known")
    pairs = [(fields.index(a), fields.index(b)) for a, b in zip(first_parts, second_parts, strict=True)]
    return Found(FieldPairs(fields, pairs, dim))


def _joined(flat: Flat, output: Output) -> list[Output] | None:
    """Return the parts of a join along the second of three dimensions, in which each has size 1."""
    sizes = flat.known(output)
    if len(sizes) != 3:
        return None
    node = flat.direct(output, "ConcatV2")
    parts = [skip(flat.graph, output)]
    if node is not None:
        if flat.shapes.numbers(node.inputs[-1]) not in ([1], [-2]):
            return None
        parts = [skip(flat.graph, source) for source in node.inputs[:-1]]
    return parts if all(len(flat.known(part)) == 3 and flat.known(part)[1] == 1 for part in parts) else None


def sum_of_products(first: Value, second: Value) -> Value:
    """Match `Sum(first * second, -1)` over [rows, pairs, dim]."""
    return sum_over(op("Mul", first, second).where(rank(3)), 2)


def own_products(x: Value) -> Value:
    """Match the products of all vectors of x [rows, fields, dim] with each other, [rows, fields, fields]."""
    x = x.where(rank(3))
    adjoint = op(PRODUCT, x, x, adj_x=False, adj_y=bool)
    return view_of(adjoint | op(PRODUCT, x, transposed(x, [0, 2, 1]), adj_x=False, adj_y=False))
