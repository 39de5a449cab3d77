# SPDX-License-Identifier: Apache-2.0
"""Read formulas from a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from graph_tools.analysis.symbolic_shapes import Sizes, SymbolicShapes
from graph_tools.analysis.values import Values
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.model import Model
from graph_tools.recognition import formulas as formula
from graph_tools.recognition.formulas import Formula, NotAFormulaError
from graph_tools.tensors import Array

#: An idiom has fewer nodes than this.
_MOST_NODES = 40

_FUNCTIONS = {
    "Abs": "abs", "Erf": "erf", "Erfc": "erfc", "Exp": "exp", "Log": "log", "Relu": "relu", "Rsqrt": "rsqrt",
    "Sigmoid": "sigmoid", "Sqrt": "sqrt", "Tanh": "tanh",
}  # fmt: skip
_OPERATORS: dict[str, Callable[[Formula, Formula], Formula]] = {
    "Add": lambda a, b: a + b,
    "AddV2": lambda a, b: a + b,
    "BiasAdd": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": formula.divided,
    "RealDiv": formula.divided,
    "Pow": formula.power,
    "Maximum": formula.maximum,
    "Minimum": formula.minimum,
    "SquaredDifference": lambda a, b: (a - b) * (a - b),
}
#: Whether a condition is true if the first operand is larger.
_CONDITIONS = {"Greater": True, "GreaterEqual": True, "Less": False, "LessEqual": False}
_BATCH_NORMS = {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"}
#: Ops at which an idiom may end.
ENDS = ("Add", "AddV2", "BiasAdd", "Mul", "Sub", "RealDiv", "Div", "Maximum", "Select", "SelectV2", "Log", "Reshape")


class Formulas:
    """Reads formulas from a snapshot of a graph, like the values and shapes with which it is made."""

    def __init__(self, model: Model, values: Values, shapes: SymbolicShapes) -> None:
        self.graph, self.values, self.shapes = model.graph, values, shapes

    def leaves(self, end: Output) -> Iterator[Output]:
        """Yield the outputs of which `end` may be a function, the nearest first."""
        seen: set[Output] = {end}
        waiting = [end]
        while waiting and len(seen) < _MOST_NODES:
            here = waiting.pop(0)
            for output in self._inputs(self.graph[here.node]):
                output = skip(self.graph, output)
                if output not in seen and self.values.weight(output) is None:
                    seen.add(output)
                    waiting.append(output)
                    if output != end:
                        yield output

    def read(self, end: Output, leaf: Output) -> tuple[Formula, set[str]]:
        """Return the formula of `end` in terms of `leaf`, and the nodes that compute it.

        Raises
        ------
        NotAFormulaError
            `end` depends on other tensors, or there is no such formula.
        """
        sizes = self.shapes.of(leaf)
        if not sizes or sizes != self.shapes.of(end) or sizes[-1].known is None:
            raise NotAFormulaError
        nodes: set[str] = set()
        return _Reading(self, leaf, sizes, nodes).of(end), nodes

    def _inputs(self, node: Node) -> list[Output]:
        if node.controls:
            return []
        if node.op in _FUNCTIONS or node.op in {"Neg", "Square", "Inv", "Reciprocal", "Mean"}:
            return node.inputs[:1]
        if node.op == "Reshape" and self.batch_norm(node):
            return [self.graph.input(self.graph.input(node, 0), 0).inputs[0]]
        if node.op in _OPERATORS or node.op in _CONDITIONS or node.op in {"Select", "SelectV2"}:
            return node.inputs
        return []

    def batch_norm(self, node: Node) -> float | None:
        """Return epsilon if a reshape ends layer normalization as Keras 2 writes it: one channel for each row.

        `Reshape(x, [1, rows, k, 1]) → FusedBatchNorm(ones, zeros, training) → Reshape`.
        """
        norm = self.graph.input(node, 0)
        before = self.graph.input(norm, 0) if norm.op in _BATCH_NORMS else None
        if before is None or before.op != "Reshape" or node.inputs[0].port or norm.controls or before.controls:
            return None
        if attribute(norm, "data_format", b"NHWC") != b"NCHW" or not attribute(norm, "is_training", True):
            return None
        inner, outer = self.shapes.of(norm.inputs[0]), self.shapes.of(before.inputs[0])
        rows = inner is not None and len(inner) == 4 and (inner[0].known, inner[3].known) == (1, 1)
        if not rows or not inner or not outer or inner[2] != outer[-1] or outer != self.shapes.of(node.output()):
            return None
        if not self._filled(norm.inputs[1], 1.0) or not self._filled(norm.inputs[2], 0.0):
            return None
        return float(attribute(norm, "epsilon", 1e-4))

    def _filled(self, output: Output, value: float) -> bool:
        node = self.graph[skip(self.graph, output).node]
        if node.op == "Fill":
            return self.values.scalar(node.inputs[1]) == value
        found = self.values.value(output)
        return found is not None and bool(np.all(found == value))


class _Reading:
    def __init__(self, formulas: Formulas, leaf: Output, sizes: Sizes, nodes: set[str]) -> None:
        self.formulas, self.graph, self.leaf, self.sizes, self.nodes = formulas, formulas.graph, leaf, sizes, nodes
        self.known: dict[Output, Formula] = {leaf: formula.the_tensor()}

    def of(self, output: Output) -> Formula:
        output = skip(self.graph, output)
        if output not in self.known:
            constant = self._constant(output)
            self.known[output] = formula.number(constant) if constant is not None else self._computed(output)
        return self.known[output]

    def _constant(self, output: Output) -> Array | None:
        value = self.formulas.values.weight(output)
        if value is None:
            return None
        last = value.shape[-1] if value.ndim else 1
        fits = value.dtype.kind in "fi" and value.ndim <= len(self.sizes) and value.size == last
        if not fits or last not in (1, self.sizes[-1].known) or not np.all(np.isfinite(value)):
            raise NotAFormulaError
        return value.reshape(-1) if last > 1 else value.reshape(())

    def _computed(self, output: Output) -> Formula:
        node = self.graph[output.node]
        if output.port or node.controls or len(self.nodes) > _MOST_NODES:
            raise NotAFormulaError
        self.nodes.add(node.name)
        if node.op in _FUNCTIONS:
            return formula.apply(_FUNCTIONS[node.op], self.of(node.inputs[0]))
        if node.op == "BiasAdd" and attribute(node, "data_format", b"NHWC") != b"NHWC":
            raise NotAFormulaError
        if node.op in _OPERATORS:
            return _OPERATORS[node.op](self.of(node.inputs[0]), self.of(node.inputs[1]))
        if node.op == "Neg":
            return self.of(node.inputs[0]).scaled(-1.0)
        if node.op == "Square":
            return self.of(node.inputs[0]) * self.of(node.inputs[0])
        if node.op in {"Inv", "Reciprocal"}:
            return formula.divided(formula.number(1.0), self.of(node.inputs[0]))
        if node.op == "Mean" and self._is_over_rows(node):
            return formula.apply("mean", self.of(node.inputs[0]))
        if node.op in {"Select", "SelectV2"}:
            return self._selected(node)
        epsilon = self.formulas.batch_norm(node) if node.op == "Reshape" else None
        if epsilon is not None:
            return self._normed(node, epsilon)
        raise NotAFormulaError

    def _is_over_rows(self, node: Node) -> bool:
        axes = self.formulas.shapes.numbers(node.inputs[1])
        whole = self.formulas.shapes.of(node.inputs[0]) == self.sizes
        return bool(attribute(node, "keep_dims", False)) and whole and axes in ([-1], [len(self.sizes) - 1])

    def _selected(self, node: Node) -> Formula:
        condition = self.graph[skip(self.graph, node.inputs[0]).node]
        if condition.op not in _CONDITIONS or condition.controls:
            raise NotAFormulaError
        self.nodes.add(condition.name)
        difference = self.of(condition.inputs[0]) - self.of(condition.inputs[1])
        above, below = self.of(node.inputs[1]), self.of(node.inputs[2])
        if not _CONDITIONS[condition.op]:
            above, below = below, above
        return formula.where_positive(difference, above, below)

    def _normed(self, node: Node, epsilon: float) -> Formula:
        norm = self.graph.input(node, 0)
        before = self.graph.input(norm, 0)
        self.nodes.update((norm.name, before.name))
        x = self.of(before.inputs[0])
        mean = formula.apply("mean", x)
        variance = formula.apply("mean", x * x) - mean * mean
        return (x - mean) * formula.apply("rsqrt", variance + formula.number(epsilon))
