# SPDX-License-Identifier: Apache-2.0
"""Tensors that have the same elements in the same order, but different shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_tools.analysis.shapes import ShapeOf, shapes
from graph_tools.analysis.symbolic_shapes import Size, Sizes, SymbolicShapes
from graph_tools.analysis.values import Values
from graph_tools.graph import Node, Output, attribute, dtype_of, skip
from graph_tools.live import contiguous
from graph_tools.model import Model
from graph_tools.tensors import Array

_VIEWS = {"Reshape", "Squeeze", "ExpandDims"}
_MASKS = ("begin", "end", "new_axis", "shrink_axis", "ellipsis")


class Flat:
    """Analyzes a snapshot of a model: shapes of nodes that are added later are not known.

    Attributes
    ----------
    model, graph
    values : Values
    shapes : SymbolicShapes
    """

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, model.graph
        self.values = Values(model)
        self.shape_of: ShapeOf = shapes(model)
        self.shapes = SymbolicShapes(model.graph, self.shape_of)
        self.roots = model.roots()

    def origin(self, output: Output) -> Output:
        """Follow an output back through nodes that only pass it on."""
        return skip(self.graph, output)

    def known_value(self, output: Output) -> Array | None:
        """Return the elements of a constant, or of a small variable that nothing writes, or None."""
        return self.values.value(output)

    def views(self, output: Output) -> Iterator[Output]:
        """Yield an output, and then the outputs before it that have the same elements."""
        output = skip(self.graph, output)
        yield output
        node = self.graph[output.node]
        while self.is_view(node):
            output = skip(self.graph, node.inputs[0])
            yield output
            node = self.graph[output.node]

    def is_view(self, node: Node) -> bool:
        """Return whether a node returns the elements of its input in the same order."""
        if node.controls:
            return False
        if node.op == "StridedSlice":
            return self._keeps_everything(node)
        return node.op in _VIEWS or (node.op == "Transpose" and self._keeps_order(node))

    def _keeps_order(self, node: Node) -> bool:
        sizes, order = self.shapes.of(node.inputs[0]), self.shapes.numbers(node.inputs[1])
        if sizes is None or order is None or len(order) != len(sizes):
            return False
        moved = [axis for axis in order if sizes[axis] != Size(1)]
        return moved == sorted(moved)

    def _keeps_everything(self, node: Node) -> bool:
        """Return whether a slice only adds or drops dimensions of size 1: `x[:, None]`, `x[:, :, 0]`."""
        sizes, masks = self.shapes.of(node.inputs[0]), [attribute(node, f"{mask}_mask", 0) for mask in _MASKS]
        bounds = [self.shapes.numbers(source) for source in node.inputs[1:4]]
        begin_open, end_open, new, shrink, ellipsis = masks
        if sizes is None or any(bound is None for bound in bounds):
            return False
        axis, count = 0, len(bounds[0] or [])
        for i, (begin, step) in enumerate(zip(bounds[0] or [], bounds[2] or [], strict=True)):
            bit = 1 << i
            if ellipsis & bit:
                axis += len(sizes) - sum(not (new | ellipsis) >> index & 1 for index in range(count))
                continue
            if new & bit:
                continue
            if shrink & bit:
                if sizes[axis] != Size(1) or begin not in (0, -1):
                    return False
            elif not (begin_open & bit and end_open & bit) or step != 1:
                return False
            axis += 1
        return True

    def source(self, output: Output) -> Output:
        """Return the first output that has the same elements."""
        *_, last = self.views(output)
        return last

    def same(self, first: Output, second: Output) -> bool:
        """Return whether two outputs have the same elements in the same order."""
        return self.source(first) == self.source(second)

    def node(self, output: Output, *ops: str) -> Node | None:
        """Return the node that computes the elements of an output, if it is of one of `ops`."""
        node = self.graph[self.source(output).node]
        return node if node.op in ops and not node.controls else None

    def direct(self, output: Output, *ops: str) -> Node | None:
        """Return the node that computes an output, behind identities, if it is of one of `ops`."""
        node = self.graph[skip(self.graph, output).node]
        return node if node.op in ops and not node.controls else None

    def sizes(self, output: Output) -> Sizes | None:
        return self.shapes.of(output)

    def known(self, output: Output) -> list[int | None]:
        """Return the sizes of an output, with None for unknown ones; empty if its rank is not known."""
        return [size.known for size in self.shapes.of(output) or ()]

    def is_float(self, output: Output) -> bool:
        import tensorflow as tf

        return bool(dtype_of(self.graph, output) == tf.float32)

    def is_constant(self, output: Output) -> bool:
        """Return whether an output is known before serving."""
        return self.values.is_stored(output)

    def scalar(self, output: Output) -> float | None:
        """Return a constant number, or the number with which a tensor is filled."""
        value = self.values.value(output)
        if value is not None and value.dtype.kind in "fiu" and value.size:
            first = value.reshape(-1)[0]
            return float(first) if bool(np.all(value == first)) else None
        node = self.direct(output, "Mul", "OnesLike", "ZerosLike", "Fill")
        if node is None:
            return None
        if node.op == "Mul":
            parts = [self.scalar(source) for source in node.inputs]
            return None if None in parts else float(np.float32(parts[0]) * np.float32(parts[1]))
        return self.scalar(node.inputs[1]) if node.op == "Fill" else float(node.op == "OnesLike")

    def kernel(self, output: Output) -> tuple[Output, list[int]] | None:
        """Return a constant weight and its shape, or None."""
        output = skip(self.graph, output)
        shape = self.shape_of(output)
        if not self.is_constant(output) or shape is None or None in shape:
            return None
        return output, [size or 0 for size in shape]

    def row_vector(self, output: Output, like: Output) -> Output | Array | None:
        """Return a constant that is the same for all rows of `like`, with as many elements as a row, or None."""
        row = self.known(like)[1:]
        if not self.is_constant(output) or not row or None in row:
            return None
        plain = skip(self.graph, output)
        shape = self.shape_of(plain)
        size = int(np.prod([columns or 0 for columns in row]))
        if shape is None or None in shape or len(shape) > len(row) + 1 or (len(shape) > len(row) and shape[0] != 1):
            return None
        inner = [columns or 0 for columns in shape][-len(row) :]
        padded = [1] * (len(row) - len(inner)) + inner
        if padded == row:
            return plain
        value = self.values.weight(plain)
        if value is None or any(a not in (1, b) for a, b in zip(padded, row, strict=True)):
            return None
        rows = np.broadcast_to(value.reshape(padded), [columns or 0 for columns in row])
        return contiguous(rows.reshape(size))

    def reduced(self, node: Node) -> tuple[int, ...] | None:
        """Return the axes that a reduction reduces, counted from the first, or None."""
        sizes, axes = self.shapes.of(node.inputs[0]), self.shapes.numbers(node.inputs[1])
        return None if sizes is None or axes is None else tuple(sorted(axis % len(sizes) for axis in axes))

    def only_user(self, output: Output) -> Node | None:
        """Return the only node that uses an output, or None if a signature names the output."""
        users = self.graph.users(output.node)
        return users[0] if len(users) == 1 and output.node not in self.roots and not users[0].controls else None

    def adjoined(self, node: Node) -> bool:
        """Return whether a product transposes an operand."""
        return any(attribute(node, name, False) for name in ("adj_x", "adj_y", "transpose_a", "transpose_b"))
