# SPDX-License-Identifier: Apache-2.0
"""The pieces from which towers are made: one op, or a few, that compute one thing for each row."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from graph_tools.analysis.learned_widths import learn_widths
from graph_tools.analysis.shapes import shapes
from graph_tools.analysis.symbolic_shapes import Size, Sizes, SymbolicShapes, product
from graph_tools.analysis.values import Values
from graph_tools.graph import Graph, Node, Output, attribute, skip
from graph_tools.live import contiguous
from graph_tools.model import Model
from graph_tools.rewriting.matcher import GraphFacts
from graph_tools.tensors import Array

#: An output of the graph that has a weight in the needed form, or the elements of a weight that must be added.
Weight = Output | Array


@dataclass(eq=False)
class Piece:
    """One op or a few that compute one output from others, row by row.

    Attributes
    ----------
    kind : str
        `dense`, `affine`, `add`, `multiply`, `concat`, `layer_norm`, `mix`, `activation`, `negate` or `view` (the same
        rows in another shape).
    output : Output
    inputs : tuple of Output
        The inputs before identities.
    widths : tuple of int
        Number of elements of a row of each input.
    width : int
        Number of elements of a row of the output, in one or several last dimensions.
    weights : dict of str to Weight
        `kernel` [k, units], `bias`, `scale`, `shift`, `gamma`, `beta`, `weight` [k] or [1].
    activation : str or None
    alpha : float or None
        The slope of the activation, or the epsilon of a layer normalization.
    onednn : bool
        Whether the activation is a relu that TensorFlow computes with the product before it; see `contractions`.
    transpose : bool
        Whether the kernel is [units, k].
    nodes : set of str
        The nodes that the piece replaces, unless something else uses them.
    """

    kind: str
    output: Output
    inputs: tuple[Output, ...]
    widths: tuple[int, ...]
    width: int
    weights: dict[str, Weight] = field(default_factory=dict)
    activation: str | None = None
    alpha: float | None = None
    onednn: bool = False
    transpose: bool = False
    nodes: set[str] = field(default_factory=set)


def columns(sizes: Sizes | None, width: int) -> int | None:
    """Return the number of last dimensions that form rows of `width` elements; None if there are no such rows.

    A tensor whose last dimension of 1 was squeezed has rows of 1 element and no dimension for them.
    """
    if sizes is None:
        return None
    if width == 1:
        return 1 if sizes and sizes[-1] == Size(1) else 0
    for count in range(1, len(sizes) + 1):
        if product(sizes[len(sizes) - count :]) == Size(width):
            return count
    return None


class Site(GraphFacts):
    """The facts about a model during the search for pieces.

    Attributes
    ----------
    model, graph
    values : Values
    shapes : SymbolicShapes
    pieces : dict of Output to Piece
    refused : dict of str to str
        Layers that stay as they are, with the reason.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model.graph)
        self.model, self.values = model, Values(model)
        self.shapes = SymbolicShapes(model.graph, shapes(model))
        learn_widths(model, self.shapes, self.kernel_rows)
        self.pieces: dict[Output, Piece] = {}
        self.refused: dict[str, str] = {}

    def kernel_rows(self, output: Output) -> int | None:
        """Return the number of rows of a weight matrix, or None if the output is no weight matrix."""
        handle = self.values.handle(output)
        if handle is not None:
            shape: tuple[int | None, ...] = tuple(self.model.variables[handle].shape)
        else:
            shape = self.shapes.shape_of(skip(self.graph, output)) or ()
        return shape[0] if len(shape) == 2 and self.is_constant(output) else None

    def operand(self, node: Node, index: int) -> Output:
        """Return an input of a node, before identities."""
        return skip(self.graph, node.inputs[index])

    def width(self, output: Output) -> int | None:
        """Return the number of elements of a row, from the piece that computes it or else of the last dimension."""
        piece = self.pieces.get(output)
        return piece.width if piece is not None else self.last(output)

    def last(self, output: Output) -> int | None:
        """Return the number of elements of the last dimension."""
        sizes = self.shapes.of(output)
        return sizes[-1].known if sizes else None

    def common_width(self, outputs: tuple[Output, ...]) -> int | None:
        """Return the number of elements of a row of tensors of one shape, from a piece that computes one of them."""
        made = [self.pieces[output].width for output in outputs if output in self.pieces]
        widths: set[int | None] = {*made} or {self.width(output) for output in outputs}
        width = widths.pop()
        if widths or not width or any(columns(self.shapes.of(output), width) is None for output in outputs):
            return None
        return width

    def is_constant(self, output: Output) -> bool:
        """Return whether an output is known before serving."""
        return self.values.is_stored(output)

    def vector(self, output: Output, like: Output) -> Weight | None:
        """Return a known operand that is the same for all rows of another one, as [k] or [1], or None."""
        sizes, width = self.shapes.of(like), self.width(like)
        plain = skip(self.graph, output)
        if width and self.shapes.shape_of(plain) == (width,) and columns(sizes, width) == 1:
            return plain
        value = self.values.weight(output)
        if value is None or sizes is None or not width or value.dtype != np.float32 or value.ndim > len(sizes):
            return None
        count = columns(sizes, width)
        if count is None or not value.size:
            return None
        if value.size == 1:
            return _same_or_new(skip(self.graph, output), value, (1,))
        inner = value.shape[max(value.ndim - count, 0) :]
        if int(np.prod(inner)) != value.size:
            return None
        row = tuple(size.number for size in sizes[len(sizes) - count :])
        try:
            whole = np.broadcast_to(value.reshape(inner), row)
        except ValueError:
            return None
        if whole.size == value.size:
            return _same_or_new(skip(self.graph, output), value, (width,))
        return contiguous(whole.reshape(width))

    def same_shape(self, *outputs: Output) -> bool:
        """Return whether outputs have equal shapes; first dimensions may differ if all of them are unknown."""
        found = [self.shapes.of(output) for output in outputs]
        first = found[0]
        if not first or any(shape is None or len(shape) != len(first) for shape in found):
            return False
        for axis, sizes in enumerate(zip(*(shape or () for shape in found), strict=True)):
            if len(set(sizes)) > 1 and (axis or any(size.known is not None for size in sizes)):
                return False
        return True

    def text(self, output: Output) -> str:
        """Return a shape as text for a message."""
        shape = self.shapes.shape_of(output)
        return (
            "not known"
            if shape is None
            else "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
        )

    def is_float(self, node: Node) -> bool:
        import tensorflow as tf

        # Of the ops of pieces, only LeakyRelu has a default for T.
        return bool(attribute(node, "T", tf.float32) == tf.float32)


def _same_or_new(output: Output, value: Array, shape: tuple[int, ...]) -> Weight:
    return output if value.shape == shape else contiguous(value.reshape(shape))


def controls_others(graph: Graph) -> set[str]:
    """Return the names of the nodes for which others wait."""
    return {name for node in graph for name in node.controls}
