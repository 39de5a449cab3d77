# SPDX-License-Identifier: Apache-2.0
"""Recognize how looked-up rows are processed before a layer uses them: reshapes, concatenations, sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from graph_tools.analysis.batches import Batches, is_reshape, joined_axis, joined_parts
from graph_tools.analysis.sizes import Size
from graph_tools.analysis.values import Values
from graph_tools.graph import Node, Output, attribute, constant_list, dtype_of, skip
from graph_tools.live import PlanNumbers
from graph_tools.recognition.lookups.pieces import Part, Piece, as_sequence, is_static, row_width, static
from graph_tools.tensors import Array

# A linear column is computed row by row, and its weights are text in the plan.
_MOST_OUTPUTS, _MOST_WEIGHTS = 16, 4096
_NUMBERS = ("float32", "float64", "int32", "int64")
PieceOf = Callable[[Output], Piece | None]


class Joiner:
    """Combines pieces into larger pieces.

    Parameters
    ----------
    batches : Batches
    values : Values
    piece_of : callable
        Output -> the piece that computes it, if one is known already.
    depth : callable
        Output -> number of lookups that it needs, one after another.
    """

    def __init__(self, batches: Batches, values: Values, piece_of: PieceOf, depth: Callable[[Output], int]) -> None:
        self.batches, self.values, self.piece_of, self.depth = batches, values, piece_of, depth
        self.graph = batches.graph

    def reshaped(self, node: Node) -> Piece | None:
        """Return the result of a Reshape, ExpandDims, Squeeze or new axis on a piece."""
        piece, sizes = self.piece_of(node.inputs[0]), self.batches.of(node.output())
        if piece is None or not sizes or not self.batches.keeps_rows(node):
            return None
        if piece.sequence is not None:
            return piece if self._are_alike(sizes[1:], piece.shape) else None
        return piece.shaped(sizes[1:]) if is_static(sizes[1:]) else None

    def concatenated(self, node: Node) -> Piece | None:
        """Return pieces side by side: ConcatV2 or Pack along any axis but the first."""
        axis = joined_axis(self.batches, node)
        if not axis:
            return None
        parts = joined_parts(node)
        if len(set(parts)) < len(parts):
            return None  # A repeated row: attention uses it as it is.
        pieces = [self.piece_of(part) or self.copied(part) for part in parts]
        found = [piece for piece in pieces if piece is not None]
        if len(found) < len(pieces) or not self._one_batch(found) or self._waits(found):
            return None
        joins, sequences = node.op == "ConcatV2", any(piece.sequence is not None for piece in found)
        if joins and axis == 2 and (sequences or any(piece.shape[0] != 1 for piece in found)):
            return self._side_by_side(found)
        if sequences:
            return None
        place = axis - 1
        shapes = [piece.shape if joins else (*piece.shape[:place], 1, *piece.shape[place:]) for piece in found]
        if len({len(shape) for shape in shapes}) > 1 or row_width(shapes[0][:place]) != 1:
            return None
        if len({(*shape[:place], *shape[place + 1 :]) for shape in shapes}) > 1:
            return None
        total = sum(row_width(shape[place : place + 1]) for shape in shapes)
        return self._joined(found, (*shapes[0][:place], total, *shapes[0][place + 1 :]))

    def _joined(self, pieces: list[Piece], shape: tuple[Size, ...]) -> Piece:
        parts: list[Part] = []
        begin = 0
        for piece in pieces:
            parts += [part.moved(begin) for part in piece.parts]
            begin += piece.width
        initial = np.concatenate([piece.start() for piece in pieces])
        return Piece(pieces[0].batch, shape, tuple(parts), _numbers(initial))

    def _side_by_side(self, pieces: list[Piece]) -> Piece | None:
        """Return sequences [batch, T, w] joined at each position."""
        made = [as_sequence(piece) for piece in pieces]
        found = [piece for piece in made if piece is not None]
        if len(found) < len(pieces):
            return None
        if not all(self.batches.equal(piece.shape[0], found[0].shape[0]) for piece in found):
            return None
        joined = self._joined(found, (found[0].shape[0], sum(piece.width for piece in found)))
        return replace(joined, sequence=found[0].sequence)

    def added(self, node: Node) -> Piece | None:
        """Return the sum of pieces and constants."""
        sizes = self.batches.of(node.output())
        sequences = self._added_sequences(node)
        if sequences is not None:
            return sequences
        if not sizes or not is_static(sizes[1:]) or attribute(node, "data_format", b"NHWC") != b"NHWC":
            return None
        pieces: list[Piece] = []
        initial = np.zeros(row_width(sizes[1:]), np.float32)
        for source in node.inputs:
            piece = self.piece_of(source)
            if piece is None:
                bias = self._constant(source, sizes)
                if bias is None:
                    return None
                initial = initial + bias
                continue
            if piece.sequence is not None or not self._are_alike(piece.shape, sizes[1:]):
                return None
            pieces.append(piece)
            initial = initial + piece.start()
        if not pieces or not self._one_batch(pieces) or not np.isfinite(initial).all():
            return None
        parts = tuple(part.added() for piece in pieces for part in piece.parts)
        return Piece(pieces[0].batch, tuple(sizes[1:]), parts, _numbers(initial))

    def _added_sequences(self, node: Node) -> Piece | None:
        """Return the sum of sequences [batch, T, w] of one T."""
        found = [piece for piece in map(self.piece_of, node.inputs) if piece is not None and piece.sequence is not None]
        if len(found) < len(node.inputs) or not self._one_batch(found) or any(piece.initial for piece in found):
            return None
        if not all(self._are_alike(piece.shape, found[0].shape) for piece in found):
            return None
        return replace(found[0], parts=tuple(part.added() for piece in found for part in piece.parts))

    def multiplied(self, node: Node) -> Piece | None:
        """Return rows of several tables, multiplied element by element, for keys of the same values.

        Rows of different features are not multiplied here: interactions use them as they are.
        """
        found = [piece for piece in map(self.piece_of, node.inputs) if piece is not None]
        if len(found) < 2 or not self._one_batch(found) or not all(map(_is_of_single_rows, found)):
            return None
        first, second = found
        (one,), (other,) = first.parts, second.parts
        if one.key is None or one.table is None or other.key is None or other.table is None:
            return None
        alike = self._are_alike(first.shape, second.shape) and one.table.dim == other.table.dim
        if not alike or (one.key, one.table) == (other.key, other.table) or not one.key.has_values_of(other.key):
            return None
        factors = (*one.factors, (other.key, other.table), *other.factors)
        return replace(first, parts=(replace(one, factors=factors),))

    def _constant(self, output: Output, sizes: tuple[Size, ...]) -> np.ndarray | None:
        """Return a known value [width] that is added to every row."""
        value = self.values.weight(output)
        if value is None or value.dtype != np.float32 or value.ndim > len(sizes):
            return None
        if value.ndim == len(sizes) and value.shape[0] != 1:
            return None
        row = value[0] if value.ndim == len(sizes) else value
        try:
            return np.broadcast_to(row, static(sizes[1:])).reshape(-1)
        except ValueError:
            return None

    def reduced(self, node: Node) -> Piece | None:
        """Return a sum over fields, or a sum or mean over the values of one field."""
        piece, axes = self.piece_of(node.inputs[0]), constant_list(self.graph, node.inputs[1])
        sizes = self.batches.of(node.output())
        if piece is None or axes is None or not sizes or not is_static(sizes[1:]):
            return None
        if not self._is_used_once(node.inputs[0]):
            return None
        rank = len(piece.shape) + 1
        gone = sorted({axis % rank - 1 for axis in axes})
        if not gone or gone != list(range(gone[0], gone[-1] + 1)) or gone[0] < 0:
            return None
        parts = self._pool(piece, node.op, gone)
        if parts is None:
            return None
        width = row_width(sizes[1:])
        initial = None
        if piece.sequence is None and piece.initial is not None:
            initial = _numbers(piece.initial.array.reshape(-1, width).sum(axis=0))
        return Piece(piece.batch, tuple(sizes[1:]), parts, initial)

    def _is_used_once(self, output: Output) -> bool:
        """Return whether nothing else uses a tensor; another user may be an interaction, of which a sum is a part."""
        while len(self.graph.users(output.node)) == 1 and output.node not in self.values.model.outputs():
            node = self.graph[output.node]
            if node.op != "Identity" and not is_reshape(self.graph, node):
                return True
            output = node.inputs[0]
        return False

    def _pool(self, piece: Piece, op: str, gone: list[int]) -> tuple[Part, ...] | None:
        combiner = {"Sum": "sum", "Mean": "mean"}[op]
        if piece.sequence is not None:
            # The mean of no values is NaN in TensorFlow, and zeros here.
            known = gone == [0] and op == "Sum"
            return tuple(replace(part, combiner="sum") for part in piece.parts) if known else None
        if row_width(piece.shape[: gone[0]]) != 1:
            return None
        width = row_width(piece.shape[gone[-1] + 1 :])
        one_value = len(piece.parts) == 1
        if op == "Mean" and not (one_value and piece.is_plain and piece.parts[0].width == piece.width):
            return None
        made: list[Part] = []
        for part in piece.parts:
            if part.offset % width:
                return None
            if part.width == width and op == "Sum":
                made.append(replace(part, offset=0, accumulate=True))
                continue
            table = part.table
            if table is None or part.combiner is not None or table.dim != width or part.key is None:
                return None
            if op == "Mean" and part.key.may_be_none:
                return None
            made.append(replace(part, offset=0, width=width, combiner=combiner, accumulate=len(piece.parts) > 1))
        return tuple(made)

    def linear(self, node: Node) -> Piece | None:
        """Return raw numbers times a known matrix."""
        if attribute(node, "transpose_a", False) or node.controls:
            return None
        piece = self.piece_of(node.inputs[0]) or self.copied(node.inputs[0])
        weights = self.values.weight(node.inputs[1])
        if piece is None or weights is None or len(piece.shape) != 1 or weights.ndim != 2:
            return None
        if any(part.feature is None or part.matrix is not None for part in piece.parts) or not piece.is_plain:
            return None
        matrix = weights.T if attribute(node, "transpose_b", False) else weights
        few = matrix.shape[1] <= _MOST_OUTPUTS and matrix.size <= _MOST_WEIGHTS
        if matrix.dtype != np.float32 or not few or matrix.shape[0] != piece.width or not np.isfinite(matrix).all():
            return None
        parts = []
        for part in piece.parts:
            dtype = None if part.feature is None else dtype_of(self.graph, part.feature)
            if part.feature is None or self.depth(part.feature) or dtype is None or not dtype.is_floating:
                return None
            rows = matrix.take(np.arange(part.offset, part.offset + part.width), 0)
            parts.append(Part(0, matrix.shape[1], True, part.feature, matrix=PlanNumbers.of(rows)))
        return Piece(piece.batch, (matrix.shape[1],), tuple(parts))

    def copied(self, output: Output) -> Piece | None:
        """Return a piece that copies a tensor from elsewhere, if the number of elements per row is known."""
        output = skip(self.graph, output)
        sizes, dtype = self.batches.of(output), dtype_of(self.graph, output)
        if not sizes or not is_static(sizes[1:]) or dtype is None or dtype.name != "float32":
            return None
        width = row_width(sizes[1:])
        feature = self._earliest_feature(output)
        if feature is None or not width or self.graph[output.node].op in {"Const", "ReadVariableOp"}:
            return None
        return Piece(sizes[0], tuple(sizes[1:]), (Part(0, width, feature=feature),))

    def _earliest_feature(self, output: Output) -> Output | None:
        """Return the earliest tensor of numbers, [batch] or [batch, width], that has the elements of an output."""
        best: Output | None = None
        while True:
            output = skip(self.graph, output)
            node, dtype = self.graph[output.node], dtype_of(self.graph, output)
            rank = len(self.batches.of(output) or ())
            if dtype is None or dtype.name not in _NUMBERS:
                return best
            if rank in (1, 2):
                best = output
            if node.controls or output.port:
                return best
            if (
                node.op == "Cast"
                and attribute(node, "SrcT").name in _NUMBERS
                and attribute(node, "DstT") in ("float32",)
            ) or self.batches.keeps_rows(node):
                output = node.inputs[0]
            else:
                return best

    def _waits(self, pieces: list[Piece]) -> bool:
        """Return whether columns without a lookup depend on a lookup, so that they would need another group."""
        parts = [part for piece in pieces for part in piece.parts]
        looked = [self.depth(feature) for part in parts if part.table is not None for feature in part.features()]
        others = [self.depth(feature) for part in parts if part.table is None for feature in part.features()]
        return max(others, default=0) > max(looked, default=0)

    def _one_batch(self, pieces: list[Piece]) -> bool:
        return all(self.batches.equal(piece.batch, pieces[0].batch) for piece in pieces)

    def _are_alike(self, first: tuple[Size, ...], second: tuple[Size, ...]) -> bool:
        leader = self.batches.leader
        return tuple(map(leader, first)) == tuple(map(leader, second))


def _is_of_single_rows(piece: Piece) -> bool:
    """Return whether a piece consists of the rows of one lookup, side by side."""
    if len(piece.parts) != 1 or not piece.is_plain:
        return False
    part = piece.parts[0]
    return part.combiner is None and part.width == piece.width


def _numbers(initial: Array) -> PlanNumbers | None:
    """Return the numbers to which columns are added; None for zeros."""
    return PlanNumbers.of(initial) if initial.any() else None
