# SPDX-License-Identifier: Apache-2.0
"""Dtypes of the outputs of nodes."""

from __future__ import annotations

from typing import Any

from graph_tools.graph.attributes import attribute
from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Output
from graph_tools.graph.op_defs import input_types, op_def, output_types, tf_type


def dtype_of(graph: Graph, output: Output) -> Any | None:
    """Return the TensorFlow dtype of an output, or None if its op is not described."""
    node = graph[output.node]
    described = op_def(node.op, graph.op_defs)
    if described is not None:
        return tf_type(output_types(described, node.attrs)[output.port])
    if "dtype" in node.attrs:
        return attribute(node, "dtype")
    for user, index in graph.uses(output):
        described = op_def(user.op, graph.op_defs)
        if described is not None:
            return tf_type(input_types(described, user.attrs)[index])
    return None
