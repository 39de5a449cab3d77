# SPDX-License-Identifier: Apache-2.0
"""Read constants of a graph, also behind nodes that pass them on and behind arithmetic on integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.graph.attributes import attribute, const_array
from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Output
from graph_tools.graph.tracing import skip
from graph_tools.tensors import Array

_SCALAR_ARITHMETIC: dict[str, Any] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.remainder,
}


def constant(graph: Graph, output: Output) -> Array | None:
    """Return the elements of a constant, also behind identities, casts and arithmetic on integers."""
    node = graph[skip(graph, output).node]
    if node.op == "Cast":
        before = constant(graph, node.inputs[0])
        after = attribute(node, "DstT")
        return before.astype(after.as_numpy_dtype) if before is not None and after.is_integer else None
    if node.op in _SCALAR_ARITHMETIC and not node.controls:
        parts = [constant(graph, source) for source in node.inputs]
        if any(part is None or part.ndim or part.dtype.kind != "i" for part in parts):
            return None
        result: Array = np.asarray(_SCALAR_ARITHMETIC[node.op](*parts))
        return result
    return const_array(node) if node.op == "Const" else None


def constant_list(graph: Graph, output: Output) -> list[int] | None:
    """Return a constant vector or scalar of integers as a list."""
    array = constant(graph, output)
    return None if array is None or array.dtype.kind not in "iu" else [int(one) for one in array.ravel()]


def is_constant(graph: Graph, output: Output, *values: int | float | bytes) -> bool:
    """Return whether an output is a constant of one element that is among `values`."""
    array = constant(graph, output)
    return array is not None and array.size == 1 and array.ravel()[0] in values
