# SPDX-License-Identifier: Apache-2.0
"""Represent sizes that are not known before a request by symbols, and find equal sizes and products of sizes.

TensorFlow's own inference forgets that `Reshape(x, [Prod(Shape(x)[:2]), 8])` has as many rows as x. Keras and
`tf.tensordot` write a layer over more than two dimensions in this form.
"""

from __future__ import annotations

import json
import math

from graph_tools.analysis.shapes import ShapeOf
from graph_tools.analysis.symbolic_rules import SIZE_RULES
from graph_tools.analysis.symbolic_sizes import Rule, Size, Sizes, product, quotient
from graph_tools.analysis.symbolic_values import VALUE_RULES, holds_integers
from graph_tools.graph import Graph, Node, Output, attribute, constant

__all__ = ["Size", "Sizes", "SymbolicShapes", "product", "quotient"]

_MOST_SIZES = 16


class SymbolicShapes:
    """Finds symbolic sizes in a snapshot of a graph, made when this object is created.

    Parameters
    ----------
    graph : Graph
    shape_of : callable
        The static shapes of its outputs.
    """

    def __init__(self, graph: Graph, shape_of: ShapeOf) -> None:
        self.graph, self.shape_of = graph, shape_of
        self._shapes: dict[Output, Sizes | None] = {}
        self._values: dict[Output, Sizes | None] = {}
        for node in graph.ordered():  # in order, so that recursion never exceeds Python's stack
            self._follow(node)

    def of(self, output: Output) -> Sizes | None:
        """Return the sizes of an output, or None if its rank is not known."""
        if output not in self._shapes:
            same = output.port and self.graph.source(output).op == "Split"
            self._shapes[output] = self._shapes.get(Output(output.node)) if same else self._static(output)
        return self._shapes[output]

    def complete(self, known: dict[tuple[str, int, int], int]) -> None:
        """Replace symbols by numbers that are known by now."""

        def completed(size: Size) -> Size:
            factor = math.prod(known[symbol] for symbol in size.symbols if symbol in known)
            return Size(size.number * factor, tuple(symbol for symbol in size.symbols if symbol not in known))

        for found in (self._shapes, self._values):
            for output, sizes in found.items():
                if sizes and any(symbol in known for size in sizes for symbol in size.symbols):
                    found[output] = tuple(map(completed, sizes))

    def _rule(self, op: str) -> Rule | None:
        """Return the rule that finds the sizes of the first output of an op."""
        return SIZE_RULES.get(op)

    def _follow(self, node: Node) -> None:
        output = node.output()
        rule = self._rule(node.op)
        found = rule(self, node) if rule and not self._is_in_loop(node) else None
        static = self._static(output)
        if found is not None and static is not None and len(found) == len(static):
            # Use the sizes that TensorFlow knows; the others may be known to equal some symbol.
            static = tuple(b if b.known is not None else a for a, b in zip(found, static, strict=True))
        self._shapes[output] = static if static is not None else found
        rule = VALUE_RULES.get(node.op)
        if rule and holds_integers(node) and not self._is_in_loop(node):
            self._values[output] = rule(self, node)

    def _static(self, output: Output) -> Sizes | None:
        shape = self.shape_of(output)
        if shape is None:
            return None
        found = [Size(1, ((*output, i),)) if size is None else Size(size) for i, size in enumerate(shape)]
        if found and self.graph[output.node].op == "RecCollapseRows":
            found[0] = Size(1, ((output.node, 0, 0),))  # all its outputs have the same number of rows
        looked_up = _sizes_of_sequence(self, output) if len(found) == 3 else None
        if looked_up is not None:
            # A row for each value of a feature, whose sizes TensorFlow may not know.
            found[:2] = [b if a.known is None else a for a, b in zip(found[:2], looked_up, strict=True)]
        return tuple(found)

    def value(self, output: Output) -> Sizes | None:
        """Return the elements of a small integer tensor of sizes, or None."""
        if output not in self._values:
            array = constant(self.graph, output)
            if array is not None and array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _MOST_SIZES:
                self._values[output] = tuple(Size(int(element)) for element in array.ravel())
            else:
                self._values[output] = None
        return self._values[output]

    def numbers(self, output: Output) -> list[int] | None:
        """Return the elements of a small integer tensor that are the same in every request, or None.

        They may be those of a constant, or follow from shapes that are known.
        """
        found = self.value(output)
        return None if found is None or any(size.symbols for size in found) else [size.number for size in found]

    def _is_in_loop(self, node: Node) -> bool:
        """Return whether an input of a node has not been visited yet, as in loops of TF 1."""
        return any(source not in self._shapes and not source.port for source in node.inputs)


def _sizes_of_sequence(shapes: SymbolicShapes, output: Output) -> Sizes | None:
    """Return the sizes of a feature [rows, positions] for whose values a group of lookups returns a row each."""
    node = shapes.graph[output.node]
    if node.op != "RecEmbeddingGroup":
        return None
    plan = json.loads(attribute(node, "plan"))
    key = plan["outputs"][output.port].get("sequence")
    ids = None if key is None else shapes.of(node.inputs[plan["keys"][key]["feature"]])
    return ids if ids is not None and len(ids) == 2 else None
