# SPDX-License-Identifier: Apache-2.0
"""Read constants of a graph: the one rule that readers, analyses and passes share."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.graph.attributes import attribute, const_array
from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Node, Output
from graph_tools.graph.tracing import PASS_THROUGH
from graph_tools.tensors import Array

_SCALAR_ARITHMETIC: dict[str, Any] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.remainder,
}
_DIVISIONS = {"FloorDiv", "FloorMod"}
#: Longest chain of casts and arithmetic that is followed; constant folding computes longer ones.
_DEEPEST = 100


def constant(graph: Graph, output: Output, *, waits: bool = True) -> Array | None:
    """Return the elements of a constant, also behind nodes that pass it on, casts and arithmetic on integers.

    Parameters
    ----------
    graph : Graph
    output : Output
    waits : bool
        Whether its nodes may have control inputs. These decide when the value is there, but never which value it is.
        Pass False if the nodes are to be removed together with what they wait for.

    Returns
    -------
    ndarray, or None if the elements depend on a request or on a variable.
    """
    return _Reading(graph, waits).of(output, _DEEPEST)


class _Reading:
    """Reads one constant; nodes that several operands need are read once."""

    def __init__(self, graph: Graph, waits: bool) -> None:
        self.graph, self.waits = graph, waits
        self._known: dict[str, Array | None] = {}

    def of(self, output: Output, depth: int) -> Array | None:
        node = self.graph[output.node]
        while node.op in PASS_THROUGH and (self.waits or not node.controls):
            node = self.graph.input(node, 0)
        if node.name not in self._known:
            self._known[node.name] = self._compute(node, depth)
        return self._known[node.name]

    def _compute(self, node: Node, depth: int) -> Array | None:
        if not depth or (node.controls and not self.waits):
            return None
        if node.op == "Const":
            return const_array(node)
        if node.op == "Cast" and _is_integer(node, "DstT"):
            before = self.of(node.inputs[0], depth - 1)
            return None if before is None else before.astype(attribute(node, "DstT").as_numpy_dtype)
        if node.op in _SCALAR_ARITHMETIC and _is_integer(node, "T"):
            return _apply_arithmetic(node.op, [self.of(source, depth - 1) for source in node.inputs])
        return None


def _is_integer(node: Node, key: str) -> bool:
    dtype = attribute(node, key)
    return dtype is not None and bool(dtype.is_integer)


def _apply_arithmetic(op: str, operands: list[Array | None]) -> Array | None:
    """Return the result of arithmetic on integer scalars; None for other operands, or if TensorFlow fails on them."""
    if any(operand is None or operand.ndim or operand.dtype.kind != "i" for operand in operands):
        return None
    if op in _DIVISIONS and operands[1] == 0:
        return None
    result: Array = np.asarray(_SCALAR_ARITHMETIC[op](*operands))
    return result


def constant_list(graph: Graph, output: Output) -> list[int] | None:
    """Return a constant vector or scalar of integers as a list."""
    array = constant(graph, output)
    return None if array is None or array.dtype.kind not in "iu" else [int(element) for element in array.ravel()]


def is_constant(graph: Graph, output: Output, *values: int | float | bytes) -> bool:
    """Return whether an output is a constant of one element that is among `values`."""
    array = constant(graph, output)
    return array is not None and array.size == 1 and array.ravel()[0] in values
